"""The files that `queuewise new-policy NAME` writes: a policy and its test. `{name}` and `{cls}` are filled in."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from queuewise.errors import InputError

TAKEN = ("numpy", "pytest", "queuewise")  # modules that the files import

POLICY = '''"""{name}: your own scheduling policy.

    queuewise simulate --workload bench --jobs 20000 --cluster 16x8:V100-16 --policy {name}.py:{name} --policy sjf

Below are three ways to write one; keep those you need. docs/policies.md ("A policy of your own") describes every field.
`python -m pytest test_{name}.py` tests this file.
"""

from queuewise.policies.interface import Start

STATE_SIZE = 2  # how many numbers `state` holds; they are 0 when a replay begins
# TIME_LIMIT_S = 20.0  # how long scoring the queue may take before the command gives up


# 1. A score per job. The lowest score goes first; ties are broken by submission. It is compiled, so it is as fast as a
#    built-in order.
#    Take any of these parameters, in any order:
#      job      submit estimate predicted width num_tasks gpus cpus mem_mib priority deadline watts user group index
#               predicted_low predicted_high user_mean user_spread user_gap
#      now      seconds
#      queue    length width work oldest_submit
#      cluster  nodes gpus free_gpus cores free_cores mem_mib free_mem_mib running_jobs utilisation
#      user     running_jobs running_width recent_work   (of the job's user)
#      params   the numbers in PARAMS, or others that a call gives instead
#      state    STATE_SIZE numbers that the function may change; they are kept between calls
#    A function that takes only `job` and `params` is called once per job.
#    A second function {name}_hold returns 0 if a job may start, or the seconds for which it must not.
#
#    --policy {name}.py:{name}           alone: the first job blocks the queue until it fits
#    --policy {name}.py:{name}+easy      with backfill; fcfs+easy:{name}.py:{name} sorts only the backfilled jobs by it
def {name}(job, now):
    """Short and small jobs first; after a day of waiting, size hardly matters."""
    waited = now - job.submit
    return job.estimate * job.width / (1.0 + waited / 86400.0) ** 8


# 2. A score per node that has room for a task of the job. The lowest score is filled first. It is compiled too.
#      node  index gpus free_gpus whole_gpus cores free_cores mem_mib free_mem_mib slots kind speed watts core_watts rack asleep
#      job   num_tasks remaining gpus cpus mem_mib   (gpus, cpus and mem_mib are per task)
#
#    --policy fcfs+easy@{name}.py:{name}_node
def {name}_node(node, job):
    """The node that is left with the fewest free GPUs."""
    return node.free_gpus - min(node.slots, job.remaining) * job.gpus


# 3. A complete policy in Python: slow, but it can do anything. The view has now, queue, running, nodes(job) and fits(job).
#
#    --policy {name}.py:{cls}            jobs go where the placement rule says: {name}.py:{cls}@spread
class {cls}:
    """Start everything that fits, smallest first."""

    def reset(self, cluster, seed):
        self.cluster = cluster

    def decide(self, view):
        for job in sorted(view.queue, key=lambda job: job.width):
            if view.fits(job):
                yield Start(job)  # or Start(job, {{node: tasks}}) to choose the nodes
'''

TEST = '''"""Tests of {name}.py. Scores are plain functions, so they can be called with records made by hand."""

from pathlib import Path

import queuewise
from queuewise.policies.records import Demand, Job, Node

from {name} import {name}, {name}_node

HERE = Path(__file__).parent / "{name}.py"


def replay(policy):
    workload = queuewise.load_workload("bench", jobs=300).workload
    return queuewise.simulate(workload, queuewise.load_cluster("4x8:V100-16"), policy, estimates="oracle")


def test_short_jobs_go_before_long_ones():
    assert {name}(Job(estimate=60), now=0.0) < {name}(Job(estimate=3600), now=0.0)


def test_waiting_helps():
    assert {name}(Job(estimate=60), now=86400.0) < {name}(Job(estimate=60), now=0.0)


def test_the_fuller_node_is_taken():
    job = Demand(gpus=1)
    assert {name}_node(Node(gpus=8, free_gpus=1), job) < {name}_node(Node(gpus=8, free_gpus=5), job)


def test_every_job_runs():
    for policy in (f"{{HERE}}:{name}+easy", f"fcfs@{{HERE}}:{name}_node", f"{{HERE}}:{cls}"):
        assert replay(policy).finished.all()
'''


@dataclass(frozen=True)
class StarterFiles:
    """The texts of a new policy and of its test, under their file names."""

    policy_file: str
    policy: str
    test_file: str
    test: str


def make_starter(name: str) -> StarterFiles:
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot be the name of a policy", hint="use lower-case letters, digits and _, for example my_policy")
    if name in sys.stdlib_module_names or name in TAKEN:
        raise InputError(
            f"{name!r} is the name of a Python module, which {name}.py would hide", hint=f"use another name, for example my_{name}"
        )
    words = {"name": name, "cls": "".join(part.capitalize() for part in name.split("_") if part)}
    return StarterFiles(f"{name}.py", POLICY.format(**words), f"test_{name}.py", TEST.format(**words))
