"""`queuewise suite`: rank policies on a fixed set of tasks."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from queuewise.evaluation.suite import Standings


@dataclass(frozen=True)
class Suite:
    """Rank policies on a fixed set of tasks: workload models, and public logs if QUEUEWISE_TRACES names their folder."""

    policy: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A policy to rank beside the usual ones. Repeat for several."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only three workload models, in seconds."""
    traces: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the public logs. Default: QUEUEWISE_TRACES."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""

    def run(self) -> None:
        from queuewise.cli.console import announce_compilation, check_policies, note
        from queuewise.errors import InputError
        from queuewise.evaluation.suite import POLICIES, run_suite, traces_folder

        check_policies(self.policy)
        traces = self.traces or traces_folder()
        if traces is not None and not traces.is_dir():
            raise InputError("no such folder", where=str(traces), hint="name the folder of the logs, or leave --traces out")
        announce_compilation()
        found = run_suite((*self.policy, *POLICIES), quick=self.quick, traces=traces, on_task=lambda task: note(f"{task.name} …"))
        if found.left_out:
            note(f"without {', '.join(found.left_out)}: their logs are not there; set QUEUEWISE_TRACES or --traces to their folder")
        if self.json:
            print(json_text.dumps(found.as_json(), allow_nan=False))
        else:
            _print(found)


def _print(found: Standings) -> None:
    from queuewise.cli.console import print_table
    from queuewise.evaluation.suite import REFERENCE

    tasks = list(dict.fromkeys(one.task for one in found.outcomes))
    bsld = {(one.task, one.policy): one.means["bsld"] for one in found.outcomes}
    rows = [[policy, f"{found.ratio(policy):.3f}", *(f"{bsld[task, policy]:.2f}" for task in tasks)] for policy in found.policies]
    print_table(["policy", f"bsld and wait ÷ {REFERENCE}", *(f"bsld {task}" for task in tasks)], rows)
