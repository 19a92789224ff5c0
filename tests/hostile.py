"""A run whose every name tries to be more than a name: HTML, script, places of the page's template, formulas, links, terminal codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.evaluation.experiment import Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import judge
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.results import write_results
from queuewise.evaluation.scores import parse_score
from queuewise.report.html import write_report
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload
from stand_in import busy_days, line_up

SCRIPT = "<img src=x onerror=\"document.title='stolen'\">"
LINK = '<a href="https://example.org/">click</a>'
NAMES = (
    SCRIPT, "<!--<script>", "</script><script>document.title='stolen'</script>", LINK, "@@data@@", "@@code@@ @@policy@@", r"$\frac$",
    "=1+1|calc", "a|b", "[click](javascript:alert(1))", "\x1b]0;stolen\x07\x1b[31m", "two\nlines", r"\input{/etc/passwd}", "&lt;b&gt;",
)  # fmt: skip
POLICIES = ("line", f"=line {SCRIPT} {LINK} @@data@@", "@@data@@ $\\frac$ two\nlines")
RUN_NAME = "@@data@@ <img src=x onerror=alert(1)> $x$ \\input{y}"


def hostile_jobs(num_jobs: int = 400) -> Workload:
    jobs = busy_days(num_jobs)
    ids = np.array([NAMES[j % len(NAMES)] + str(j) for j in range(num_jobs)], dtype=object)
    users = tuple(NAMES[u % len(NAMES)] + str(u) for u in range(40))
    return replace(jobs, name="@@data@@", job_id=ids, users=users, groups=(SCRIPT, "<!--<script>", LINK))


def hostile_cluster() -> Cluster:
    groups = [
        NodeGroup(count=1, gpus=8, kind="V100-16", cpus=64, mem_gib=256, name=name, partition=name) for name in (SCRIPT, LINK + "@@data@@")
    ]
    return build(f"@@data@@{SCRIPT}", groups)


def hostile_line(jobs: Workload, cluster: Cluster, policy: str, **rules: object) -> Schedule:
    return replace(line_up(jobs, cluster, "line", **rules), policy=policy)


def hostile_report(folder: Path) -> Path:
    """A finished evaluation with its report; returns the run folder."""
    run = folder / RUN_NAME
    jobs = hostile_jobs()
    setup = Experiment(jobs, hostile_cluster(), make_plan("windows", jobs, num_windows=2, window_jobs=200), ReplaySettings())
    cells = run_experiment(setup, list(POLICIES), hostile_line, folder=run)
    write_results(run, cells, judge(cells, parse_score("bsld")))
    write_report(run, exports="all")
    return run
