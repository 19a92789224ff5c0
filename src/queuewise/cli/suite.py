"""`queuewise suite`: rank policies on a fixed set of tasks."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from queuewise.evaluation.suite import Standings
    from queuewise.report.text_tables import TextTable


@dataclass(frozen=True)
class Suite:
    """Rank policies on a fixed set of tasks: workload models, and public logs if QUEUEWISE_TRACES names their folder."""

    policy: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A policy to rank beside the usual ones. Repeat for several."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only three workload models, in seconds."""
    traces: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the public logs. Default: QUEUEWISE_TRACES."""
    page: Annotated[Path | None, tyro.conf.arg(metavar="FILE.md")] = None
    """Also write the leaderboard as a page of Markdown."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""

    def run(self) -> None:
        from queuewise.cli.console import announce_compilation, check_policies, note
        from queuewise.errors import InputError
        from queuewise.evaluation.suite import POLICIES, run_suite, traces_folder
        from queuewise.regular_files import check_regular
        from queuewise.runs import write_text

        check_policies(self.policy)
        if self.page is not None and not self.page.parent.is_dir():
            raise InputError("no such folder", where=str(self.page.parent), hint="create it or choose another --page")
        if self.page is not None:
            check_regular(self.page, "choose another --page")  # a mistake is reported before the work
        traces = self.traces or traces_folder()
        if traces is not None and not traces.is_dir():
            raise InputError("no such folder", where=str(traces), hint="name the folder of the logs, or leave --traces out")
        announce_compilation()
        found = run_suite((*self.policy, *POLICIES), quick=self.quick, traces=traces, on_task=lambda task: note(f"{task.name} …"))
        for remark in found.remarks:
            note(remark)
        if found.left_out:
            note(f"without {', '.join(found.left_out)}: their logs are not there; set QUEUEWISE_TRACES or --traces to their folder")
        if self.page is not None:
            write_text(self.page, _page(found))
        if self.json:
            print(json_text.dumps(found.as_json(), allow_nan=False))
        else:
            _print(found)


def _print(found: Standings) -> None:
    from queuewise.cli.console import print_table

    print_table(*_standings(found))
    print_table(*_waits(found), left=2)


def _standings(found: Standings) -> TextTable:
    from queuewise.evaluation.suite import REFERENCE

    tasks = list(dict.fromkeys(one.task for one in found.outcomes))
    bsld = {(one.task, one.policy): one.means["bsld"] for one in found.outcomes}
    rows = [[policy, f"{found.ratio(policy):.3f}", *(f"{bsld[task, policy]:.2f}" for task in tasks)] for policy in found.policies]
    return ["policy", f"bsld and wait ÷ {REFERENCE}", *(f"bsld {task}" for task in tasks)], rows


def _waits(found: Standings) -> TextTable:
    """What stands beside the scores of every task."""
    from queuewise.report.readable import duration, figure

    rows = []
    for one in found.outcomes:
        waits = [duration(wait) for wait in (one.means["wait"], one.p99_wait_s, one.max_wait_s)]
        used = "–" if one.utilisation is None else f"{one.utilisation:.1%}"
        rows.append([one.task, one.policy, figure(one.means["bsld"], 2), *waits, figure(one.makespan_by_span, 3), used])
    return ["task", "policy", "bsld", "mean wait", "p99", "max", "makespan ÷ span", "used"], rows


def _page(found: Standings) -> str:
    from queuewise.evaluation.suite import TASKS
    from queuewise.report.text_tables import to_markdown

    clusters = {task.name: task for task in TASKS}
    tasks = [
        [name, clusters[name].cluster, clusters[name].path or f"model {clusters[name].model}, {clusters[name].windows} windows"]
        for name in dict.fromkeys(one.task for one in found.outcomes)
    ]
    return "\n".join([
        "# Leaderboard", "",
        "For anyone who wants to compare a policy with others: a fixed set of tasks, each with its jobs, cluster, estimates and",
        "protocol. `queuewise suite --page docs/leaderboard.md` writes this page, and `--policy NAME` adds a policy. They are",
        "ranked by the geometric mean over tasks of mean bounded slowdown and mean wait, relative to `fcfs+easy`; lower is",
        "better.", "",
        to_markdown(_standings(found)),
        "## Tasks", "", "Of logs, the last 35 % of the days count, in four replays with shaken submissions.", "",
        to_markdown((["task", "cluster", "jobs"], tasks)),
        "## Waits", "", to_markdown(_waits(found)),
    ])  # fmt: skip
