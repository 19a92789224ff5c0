"""The sentences with which a report begins: what the figures say, in one line, and what is drawn below."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from queuewise.evaluation import measure
from queuewise.evaluation.judging import Result
from queuewise.evaluation.measure import Measurement
from queuewise.evaluation.wait_causes import WaitCauses, in_words
from queuewise.report.charts import Chart
from queuewise.report.readable import duration, figure
from queuewise.report.text_tables import interval

IN_WORDS = {  # of scores; sums and the others have their names
    "bsld": "mean bounded slowdown", "slowdown": "mean slowdown", "wait": "mean wait", "jct": "mean completion time",
}  # fmt: skip
ANSWER = re.compile(r'<p id="answer">(.*?)</p>', re.S)


def answer_of(replays: Sequence[Measurement], causes: Mapping[str, WaitCauses], result: Result | None) -> str:
    """One or two sentences with the numbers that matter."""
    return _ranking(result) if result is not None else _waits(replays, causes)


def _ranking(result: Result) -> str:
    best, better = result.standings[0], "highest" if result.score.higher_is_better else "lowest"
    digits = 4 if abs(best.mean) < 10 else 2
    bounds = f" (95 % {interval(best.ci95, digits, result.score.least)})" if best.ci95 else ""
    name = IN_WORDS.get(result.score.name, result.score.name)
    first = f"{best.policy} has the {better} {name}, {figure(best.mean, digits)}{bounds}"
    baseline, versus = best.best_baseline, best.vs_best_baseline
    if baseline == best.policy and len(result.standings) > 1:
        second = result.standings[1]
        baseline, change = second.policy, (best.mean / second.mean - 1 if second.mean else None)
        clear = second.rank > best.rank
    else:
        change, clear = (versus.relative if versus else None), bool(versus and versus.clear and not versus.same)
    if baseline is not None and baseline != best.policy and change is not None:
        first += f": {_against(change, baseline)}" + ("." if clear or not change else ", no significant difference.")
    else:
        first += "."
    waits = result.beside[best.policy]
    return f"{first} Under it the mean wait is {duration(waits.wait_s)}, the longest {duration(waits.max_wait_s)}."


def _against(change: float, baseline: str) -> str:
    percent = f"{100 * abs(change):.0f} %"
    if percent == "0 %":
        return f"{'within 1 % of' if change else 'the same as'} {baseline}"
    return f"{percent} {'below' if change < 0 else 'above'} {baseline}"


def _waits(replays: Sequence[Measurement], causes: Mapping[str, WaitCauses]) -> str:
    ended = [m for m in replays if m.rows.size]
    if not ended:
        return "No job ran."
    best = min(ended, key=lambda m: float(measure.wait(m).mean()))
    waits = measure.wait(best)
    policy = best.schedule.policy
    text = f"Median wait {duration(float(np.median(waits)))}, 90 % below {duration(float(np.quantile(waits, 0.9)))} under {policy}"
    if len(ended) > 1:
        worst = max(ended, key=lambda m: float(measure.wait(m).mean()))
        means = [float(measure.wait(m).mean()) for m in (best, worst)]
        first, last = map(duration, means)
        if first == last:
            text += f"; the mean wait is the same under every policy: {first}"
        else:
            text += f", which has the lowest mean wait: {first}, against {last} under {worst.schedule.policy}"
    shares = causes[policy].shares() if policy in causes else {}
    return f"{text}. Waiting: {in_words(shares)}." if shares else f"{text}."


def drawn_part(m: Measurement, window: int, windows: int, *, in_days: bool = False) -> str:
    """Which jobs and days the charts show. `in_days`: the windows are replays of the same days, all but the first of them shaken."""
    workload = m.schedule.workload
    counted = workload.submit[m.jobs]
    if not len(counted):
        return ""
    jobs = f"{len(counted):,} jobs" if len(counted) == len(workload) else f"{len(counted):,} of the {len(workload):,} replayed jobs"
    span = duration(float(counted[-1] - counted[0]))
    if workload.epoch:
        first, last = (datetime.fromtimestamp(workload.epoch + float(time), UTC).strftime("%Y-%m-%d") for time in (counted[0], counted[-1]))
        span = f"{first} to {last}" if first != last else first
    name = "replay" if in_days else "window"
    which = f"{name} {window} of 0 to {windows - 1}; queuewise report --window I draws another" if windows > 1 else "the whole replay"
    return f"Charts and metrics by job show {jobs}, {span} ({which})."


def name_coinciding(chart: Chart) -> str:
    """A sentence about curves that lie on each other, empty if none do."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for series in chart.series:
        groups.setdefault((tuple(series.x), tuple(series.y)), []).append(series.name)
    same = [
        " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}" for names in groups.values() if len(names) > 1
    ]
    return f" {'; '.join(same)} coincide." if same else ""


def read_answer(page: Path) -> str:
    """The first sentences of a report."""
    found = ANSWER.search(page.read_text(encoding="utf-8"))
    return html.unescape(found[1]) if found else ""
