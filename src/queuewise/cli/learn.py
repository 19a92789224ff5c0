"""`queuewise learn`: a policy that is better on days nobody has seen, or the answer that none is."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.evaluation.seen_days import TrainedOn
    from queuewise.report.text_tables import TextTable
    from queuewise.search.learning import Learned
    from queuewise.workload.jobs import Workload


REPORT, DETAILS = "learned.md", "learned.json"
MOST_HEURISTICS = 10


@dataclass(frozen=True)
class Learn:
    """Find a policy from a log: compare all heuristics on its past days, search for a better rule, and judge both on later days."""

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A log (the format is detected)."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A preset (see queuewise clusters), flat:N, NxM:kind or a .toml file. Default: that of the log (docs/clusters.md)."""
    reading: Reading = field(default_factory=Reading)
    estimates: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """What policies know about runtimes (as for queuewise simulate). Default: requested if the log has requests."""
    budget: Annotated[str, tyro.conf.arg(metavar="TIME")] = "10m"
    """Wall time of the whole command: a number with s, m, h or d."""
    objective: Annotated[str, tyro.conf.arg(metavar="SUM")] = "bsld + wait"
    """What is minimised: a sum of bsld, wait, energy, fairness, utilisation and deadlines with weights, as in "bsld + 0.5*wait"."""
    split: Annotated[str | None, tyro.conf.arg(metavar="TRAIN,VAL,REPORT")] = None
    """Shares of the log's time span, 0.45,0.2,0.35 by default."""
    preempt: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Jobs may be stopped and go on later, at no cost: also compare policies that do so."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Use the first N jobs of the log."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed of the search."""
    out: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of the run, runs/learn-LOG by default. A search that was interrupted continues."""
    export: Annotated[Path | None, tyro.conf.arg(metavar="FILE.py|FILE.lua")] = None
    """Also write the rule that was found as a function that people can read."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with one line of JSON."""

    def run(self) -> None:
        from queuewise.cli.console import announce_compilation, note
        from queuewise.errors import InputError
        from queuewise.evaluation.experiment import ReplaySettings
        from queuewise.evaluation.protocol import DEFAULT_SPLIT, parse_split
        from queuewise.evaluation.remarks import equal_requests
        from queuewise.policies.names import check_run_name, parse_bound, run_name
        from queuewise.policies.rule_export import export_rule
        from queuewise.regular_files import check_regular
        from queuewise.runs import create_folder, write_text
        from queuewise.search.learning import Learning, LearnSettings
        from queuewise.search.objective import parse_objective
        from queuewise.workload.estimates import check_estimate, check_known, default_estimates

        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative", hint="use 0 or more")
        if self.export is not None and self.export.suffix not in (".py", ".lua"):
            raise InputError(f"--export {self.export} is neither a .py nor a .lua file", hint="choose one of these endings")
        if self.export is not None and not self.export.parent.is_dir():
            raise InputError("no such folder", where=str(self.export.parent), hint="create it or choose another --export")
        if self.export is not None:
            check_regular(self.export, "choose another --export")
        budget_s, objective = parse_bound(self.budget, "--budget"), parse_objective(self.objective)
        split = DEFAULT_SPLIT if self.split is None else parse_split(self.split)
        if self.estimates is not None:
            check_estimate(self.estimates)
        loaded, cluster = self.reading.load_with_cluster(self.log, self.cluster, self.jobs, self.seed, note)
        estimates = self.estimates or default_estimates(loaded.workload)
        check_known(loaded.workload, estimates)
        for remark in equal_requests(loaded.workload, estimates, self.seed):
            note(remark)
        announce_compilation()
        out = Path(self.out or Path("runs", run_name(f"learn-{loaded.workload.name}")))
        check_run_name(str(out))
        create_folder(out)
        trained_on = () if loaded.workload.generated else (self._trained_on(loaded.workload, split),)
        settings = LearnSettings(budget_s, ReplaySettings(estimates=estimates, split=split), objective, self.seed, self.preempt, trained_on)
        found = Learning(loaded.workload, cluster, settings, out, note).run()
        _print(found)
        write_text(out / REPORT, _report(found, f"{loaded.workload.name} on {cluster.name}"))
        write_text(out / DETAILS, json_text.dumps(found.details(), indent=1, allow_nan=False) + "\n")
        note(f"details in {out / REPORT} and {DETAILS}")
        if self.export is not None:
            write_text(self.export, export_rule(found.rule, self.export))
            note(f"written to {self.export}")
        if self.json:
            print(json_text.dumps(found.as_json(), allow_nan=False))

    def _trained_on(self, workload: Workload, split: tuple[float, float, float]) -> TrainedOn:
        from queuewise.evaluation.seen_days import identify_log, record_training

        return record_training(workload, identify_log(workload, self.log, self.reading.load_factor), split)


def _print(found: Learned) -> None:
    from queuewise.cli.console import print_table

    print_table(*_figures(found))
    print(found.sentence)


def _figures(found: Learned) -> TextTable:
    from queuewise.report.readable import duration, figure
    from queuewise.search.objective import TOTALS, totals_in

    rows, totals = [], totals_in(found.objective)
    for policy in found.test.cells:
        p99, makespan, used = found.test.beside(policy)
        waits = [duration(wait) for wait in (found.test.mean(policy, "wait"), p99, found.test.max_wait(policy))]
        beside = [figure(makespan, 3), "–" if used is None else f"{used:.1%}"]
        diff, ci95 = found.test.percent(policy, found.baseline, "bsld")
        against = "" if policy == found.baseline else f"{diff:+.0f} %" + (f" ({ci95[0]:+.0f} … {ci95[1]:+.0f})" if ci95 else "")
        others = [figure(found.test.total(policy, name), 4) for name in totals]
        rows.append([policy, figure(found.test.mean(policy, "bsld"), 2), against, *waits, *others, *beside])
    columns = [
        "on the report days", "mean bsld", f"against {found.baseline}", "mean wait", "p99", "max", *(TOTALS[name].label for name in totals),
        "makespan ÷ span", "used",
    ]  # fmt: skip
    return columns, rows


def _report(found: Learned, where: str) -> str:
    """The whole result as Markdown."""
    from queuewise.report.readable import duration
    from queuewise.report.text_tables import markdown_text, to_markdown

    effects = [
        [effect.key, effect.label, f"{effect.jobs}", duration(effect.wait_s), duration(effect.other_wait_s)] for effect in found.effects
    ]
    terms = [[term.name, f"{term.value:.4g}", f"{term.added_cost:+.3f}"] for term in found.terms]
    best = sorted(found.screened, key=lambda one: one.bsld["val"])[:MOST_HEURISTICS]
    heuristics = [
        [one.policy, *(f"{one.bsld[block]:.2f}" for block in ("train", "val")), *(duration(one.wait[block]) for block in ("train", "val"))]
        for one in best
    ]
    parts = [
        f"# What was learned of {markdown_text(where)}",
        markdown_text(f"{found.sentence}."),
        to_markdown(_figures(found)),
        "## Who waits longer, and who less",
        markdown_text(
            f"Mean waits on the report days under {found.recommended} and {found.baseline}, where they change most."
            if effects
            else f"{found.recommended} is the baseline itself."
        ),
        to_markdown((["by", "class", "jobs", "recommended", "baseline"], effects)) if effects else "",
        "## The rule that was found",
        f"{found.rule.describe()} ({found.generations} generations). Without a term, the rule would cost so much more on the "
        "validation days; below 0, it would be better without it.",
        to_markdown((["term", "number", "added cost"], terms)),
        "## Heuristics",
        f"The best of {len(found.screened)} on the validation days.",
        to_markdown((["policy", "bsld, training days", "validation days", "wait, training days", "validation days"], heuristics)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
