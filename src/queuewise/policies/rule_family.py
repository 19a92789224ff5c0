"""The family of rules that `queuewise learn` searches. A rule of it is nothing but PARAMS; see `found_rules` for their names.

This file is read and compiled like a policy of a user's own. `score` sorts the queue by a polynomial of what is known of a job, less its
age. `watchful` also looks whether the job fits now, and how much of the machine is missing if not. `patient` does the same as `watchful`,
and holds a job back while it fits but would leave too little of the machine free: the longer a job, the more must stay free, and the less
the longer it has waited. A job that does not fit is passed over, without a reservation, until it has waited for `guard` times its runtime.
"""

import math
from typing import Any

LOG_HOUR = math.log(3600.0)
# The names are those of found_rules.NUMBERS. As they stand, they make the order of `wise`.
PARAMS = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def machine_size(cluster: Any) -> Any:
    return cluster.gpus if cluster.gpus > 0 else cluster.cores


def machine_free(cluster: Any) -> Any:
    return cluster.free_gpus if cluster.gpus > 0 else cluster.free_cores


def score(job: Any, now: float, cluster: Any, params: Any) -> Any:
    runtime = math.log(max(job.estimate, 1.0)) - LOG_HOUR
    width = math.log(max(job.width, 0.001))
    share = job.width / machine_size(cluster)
    age = math.log1p(max(now - job.submit, 0.0) / (3600.0 * math.exp(params[8])))
    polynomial = params[0] * runtime + params[1] * width + params[2] * runtime**2 + params[3] * width**2 + params[4] * runtime * width
    return polynomial + share * (params[5] + params[6] * runtime) - params[7] * age


def watchful(job: Any, now: float, cluster: Any, params: Any) -> Any:
    missing = job.width - machine_free(cluster)
    blocked = params[12] + params[13] * missing / machine_size(cluster) if missing > 0 else 0.0
    return score(job, now, cluster, params) + blocked


def patient(job: Any, now: float, cluster: Any, params: Any) -> Any:
    return watchful(job, now, cluster, params)


def patient_hold(job: Any, now: float, cluster: Any, params: Any) -> float:
    runtime = max(job.estimate, 1.0)
    waited = max(now - job.submit, 0.0)
    left = machine_free(cluster) - job.width
    if left < 0.0:
        return math.inf if waited < params[14] * runtime else 0.0
    if params[16] > 0.0 and waited >= 3600.0 * params[16]:
        return 0.0
    size = machine_size(cluster)
    wanted = params[9] + params[10] * (math.log(runtime) - LOG_HOUR) + params[15] * job.width / size
    reserve = min(max(wanted, 0.0), 0.9) / (1.0 + params[11] * waited / runtime)
    return math.inf if left < reserve * (size - job.width) else 0.0
