"""`queuewise learn`: find the best heuristic of a log's past, search for a rule that is better, and say which policy to use.

1. Screening: every heuristic is replayed once.
2. Search (`rule_search`) on stretches of the training days.
3. Gate: the rule is recommended only if the objective is lower on the validation days, by an interval, neither bounded slowdown nor
   mean wait is clearly higher, and nobody waits much longer. Otherwise `wise` is, or the heuristic that is better than it on the training
   days and on the validation days.
4. The report days are looked at once, by the policies that were chosen before.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.config import to_toml
from queuewise.errors import InputError
from queuewise.evaluation.experiment import ReplaySettings
from queuewise.evaluation.protocol import BLOCKS, block_jobs
from queuewise.evaluation.seen_days import CARD_KEY, TrainedOn
from queuewise.evaluation.statistics import SAME
from queuewise.policies import simulate
from queuewise.policies.estimating import estimate_on
from queuewise.policies.found_rules import FILE, NUMBERS, SEARCHED, SEARCHED_IF_EXACT, FoundRule, rule_text
from queuewise.policies.names import MODEL, WISE, WISE_ORDER
from queuewise.runs import file_name, locked, write_text
from queuewise.search.block_verdicts import Verdicts, verdicts_on
from queuewise.search.evolution import SearchSettings
from queuewise.search.explanation import Effect, RuleTerm, ablate, effects
from queuewise.search.objective import MEANS, totals_in, totals_of
from queuewise.search.rule_search import RuleSearch
from queuewise.search.screening import Screened, Screening, measured_jobs
from queuewise.sim.core.schedule import REJECTED
from queuewise.workload.jobs import Workload

REPORT_DAYS = "report-days"
COMPARED = 4  # heuristics that a search is compared with: on every stretch with the best of them there
EXPLAINING = 2  # shaken replays of the validation days that say what each term of the rule is worth
SHAKES = 8
# Shares of the budget: of the screening, and what the search has at least. It ends when the rest is just enough for the last two steps,
# which take JUDGING times as long as the replays of the screening let expect.
SCREENING, SEARCHING = 0.25, 0.2
JUDGING = 1.3
WAIT_ACCEPTED_S, LONGER_S = 8 * 86_400.0, 86_400.0  # a rule may let a job wait so long, or so much longer than the other policy
FEWEST_JOBS = 200  # of each part of the log


@dataclass(frozen=True)
class LearnSettings:
    budget_s: float
    replay: ReplaySettings  # with the estimates of the log
    objective: dict[str, float] = field(default_factory=lambda: {"bsld": 1.0, "wait": 1.0})
    seed: int = 0
    preempt: bool = False  # also compare policies that stop jobs
    trained_on: tuple[TrainedOn, ...] = ()  # the days that a rule will have seen, for its file


@dataclass(frozen=True, eq=False)
class Learned:
    verdict: str  # better or keep
    recommended: str
    baseline: str
    rule: FoundRule
    validation: Verdicts
    test: Verdicts
    hindsight: str
    screened: list[Screened]
    objective: dict[str, float]
    terms: list[RuleTerm]  # of the rule
    effects: list[Effect]  # of the recommended policy, against the baseline
    generations: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        diff, ci95 = self._joint_percent
        series = self.test.series(self.baseline, "bsld")
        return {
            "verdict": self.verdict,
            "recommended": self.recommended,
            "baseline": self.baseline,
            "validation": {"diff_percent": diff, "ci95": ci95},
            "test": {
                "bsld": self._figures("bsld"),
                "wait_s": self._figures("wait"),
                "max_wait_s": {
                    "recommended": self.test.max_wait(self.recommended),
                    "baseline": self.test.max_wait(self.baseline),
                    "hindsight": self.test.max_wait(self.hindsight),
                    "hindsight_policy": self.hindsight,
                },
                "days": len(series.jobs),
                "jobs": round(float(series.jobs.sum())),
            },
            "seconds": self.seconds,
        }

    def details(self) -> dict[str, Any]:
        """`as_json`, the rule, and for every policy its figures on the report days and how the recommended one and the rule differ."""
        policies = {}
        for name in self.test.cells:
            row: dict[str, Any] = {"max_wait_s": self.test.max_wait(name)}
            for key, score in (("bsld", "bsld"), ("wait_s", "wait")):
                diff, ci95 = self.test.percent(self.recommended, name, score)
                of_rule = dict(zip(("found_percent", "found_ci95"), self.test.percent(self.candidate, name, score), strict=True))
                row[key] = {"mean": self.test.mean(name, score), "recommended_percent": diff, "ci95": ci95, **of_rule}
            row |= {term: self.test.total(name, term) for term in totals_in(self.objective)}
            policies[name] = row
        rule = {"numbers": dict(zip(NUMBERS, self.rule.numbers, strict=True)), "scheduling": self.rule.scheduling,
                "order_estimates": self.rule.order_estimates, "estimates": self.rule.estimates}  # fmt: skip
        counts = {"generations": self.generations, "heuristics": len(self.screened), "cpu_seconds": time.process_time()}
        return self.as_json() | {"report_days": policies, "found": self.candidate, "rule": rule} | counts

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        if self.verdict == "keep":
            return f"keep: the rule that was found is not surely better on the validation days; use {self.recommended}"
        bsld, waits = (self._difference(score) for score in ("bsld", "wait"))
        return f"better: use {self.recommended}; on the report days: bounded slowdown {bsld}, mean wait {waits} against {self.baseline}"

    def _difference(self, score: str) -> str:
        """How the recommended policy differs from the baseline on the report days."""
        diff, ci95 = self.test.percent(self.recommended, self.baseline, score)
        if diff is None:
            return "–"  # nobody waits under the baseline
        return f"{diff:+.0f} %" + (f" ({ci95[0]:+.0f} … {ci95[1]:+.0f})" if ci95 else "")

    @cached_property
    def candidate(self) -> str:
        return next(name for name in self.validation.cells if name.startswith("model:"))

    @property
    def _joint_percent(self) -> tuple[float, list[float] | None]:
        """How the rule differs from the baseline on the validation days in what days have of the objective, with the interval."""
        weights = {name: weight for name, weight in self.objective.items() if name in MEANS}
        found = self.validation.joint(self.candidate, self.baseline, weights)
        return 100 * found.relative, None if found.ci95 is None else [100 * value for value in found.ci95]

    def _figures(self, score: str) -> dict[str, Any]:
        diff, ci95 = self.test.percent(self.recommended, self.baseline, score)
        return {
            "recommended": self.test.mean(self.recommended, score),
            "baseline": self.test.mean(self.baseline, score),
            "hindsight": self.test.mean(self.hindsight, score),
            "hindsight_policy": self.hindsight,
            "diff_percent": diff,
            "ci95": ci95,
        }


class Learning:
    """One run of `learn`. `say` is given a sentence for people at every step."""

    def __init__(self, workload: Workload, cluster: Cluster, settings: LearnSettings, out: Path, say: Callable[[str], None]) -> None:
        self._workload, self._cluster, self._settings, self._out, self._say = workload, cluster, settings, out, say
        self._blocks = block_jobs(workload, settings.replay.split)
        self._began = time.monotonic()
        self._check_jobs(np.ones(len(workload), dtype=bool), "jobs", "use a longer log; wise needs no training")

    def _check_jobs(self, usable: NDArray[np.bool_], what: str, hint: str) -> None:
        """Raise an error unless there are enough usable jobs [J] in every block."""
        for block in BLOCKS:
            jobs = self._blocks[block]
            found = int(usable[jobs.start : jobs.stop].sum())
            if found < FEWEST_JOBS:
                raise InputError(
                    f"the {block} days of {self._workload.name} have {found} {what}; {FEWEST_JOBS} are needed to learn from", hint=hint
                )

    @property
    def _spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def _learned(self) -> str:
        """The rule that is found, as a policy."""
        return f"{MODEL}{self._out}"

    def run(self) -> Learned:
        """All steps. No other process may write to the folder meanwhile."""
        with locked(self._out):
            return self._run()

    def _run(self) -> Learned:
        budget = self._settings.budget_s
        usual = simulate(self._workload, self._cluster, "fcfs+easy", **self._simulate_options)
        self._check_jobs(usual.status != REJECTED, f"jobs that can run on {self._cluster.name}", "give another --cluster")
        totals_of(totals_in(self._settings.objective), measured_jobs(usual, slice(0, len(self._workload))))  # or an error that says why not
        estimate_on(self._workload, self._cluster, WISE_ORDER[1], self._settings.replay.seed)
        self._say(f"runtimes predicted, {self._spent:.0f} s")
        screening = self._screen(budget * SCREENING)
        baseline = screening.best("train").policy
        until = max(self._spent + budget * SEARCHING, budget - JUDGING * self._judging_s(screening))
        rule, generations = self._search(screening, until)
        learned = self._learned
        validation = self._judge([learned, WISE, baseline, screening.best("val").policy], "val")
        passes = self._is_better(validation, learned, baseline) and self._is_better(validation, learned, WISE)
        recommended = learned if passes else self._fallback(screening, baseline)
        self._say(f"recommended by the validation days: {recommended}")
        hindsight = screening.best_in_hindsight()
        test = self._judge([recommended, baseline, WISE, "fcfs+easy", hindsight, learned], "report")
        terms, found = self._terms(rule, baseline), self._effects(recommended, baseline)
        verdict = "better" if passes else "keep"
        return Learned(
            verdict, recommended, baseline, rule, validation, test, hindsight, screening.found, self._settings.objective, terms, found,
            generations, self._spent,
        )  # fmt: skip

    # --- screening

    def _screen(self, until: float) -> Screening:
        settings = self._settings
        screening = Screening(self._workload, self._cluster, settings.replay, settings.objective, self._blocks, lambda: self._spent)
        screening.run(until, preempt=settings.preempt)
        if len(screening.found) < screening.tried:
            self._say(f"{len(screening.found)} of {screening.tried} heuristics fit into the budget")
        best = screening.best("train")
        self._say(
            f"best heuristic of the training days: {best.policy}, bsld {best.bsld['train']:.1f} "
            f"({len(screening.found)} tried, {self._spent:.0f} s)"
        )
        return screening

    def _judging_s(self, screening: Screening) -> float:
        """How long the replays of the validation and report days will take: ten policies, shaken, by the times of the screening."""
        best = [screening.best("train").policy, screening.best("val").policy, screening.best_in_hindsight()]
        policies = [*best, best[0], *[WISE] * 5, "fcfs+easy"]  # a rule takes about as long as wise
        return SHAKES * sum(map(screening.seconds, policies)) / len(os.sched_getaffinity(0))

    @property
    def _simulate_options(self) -> dict[str, Any]:
        replay = self._settings.replay
        return {"estimates": replay.estimates, "seed": replay.seed, "kill_at_limit": replay.kill_at_limit, "conditions": replay.conditions}

    def _fallback(self, screening: Screening, baseline: str) -> str:
        """`wise`, or the heuristic that is better than it on the training days and on the validation days."""
        better = [screening.cost(baseline, block) < screening.cost(WISE, block) for block in ("train", "val")]
        return baseline if all(better) else WISE

    # --- search

    def _search(self, screening: Screening, until: float) -> tuple[FoundRule, int]:
        """The rule that is found, also in its file, and after how many generations."""
        searching = self._rule_search
        chosen = searching.run(screening.references(COMPARED), until)
        seen = to_toml({CARD_KEY: [one.model_dump() for one in self._settings.trained_on]}) if self._settings.trained_on else ""
        self._write_rule(f"{rule_text(chosen, {'found on': f'{self._workload.name}, {self._cluster.name}'})}\n{seen}")
        self._say(f"found in {searching.generations} generations ({self._spent:.0f} s): {chosen.formula}, {chosen.scheduling}")
        return chosen, searching.generations

    @property
    def _rule_search(self) -> RuleSearch:
        settings = self._settings
        numbers = SEARCHED_IF_EXACT if settings.replay.estimates == "oracle" else SEARCHED
        how = SearchSettings(settings.objective, numbers, seed=settings.seed)
        return RuleSearch(self._workload, self._cluster, self._blocks, settings.replay, how, self._out, lambda: self._spent, self._say)

    def _write_rule(self, text: str) -> None:
        """Write the file of the rule. What an earlier run has measured of another rule is removed."""
        path = self._out / FILE
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            shutil.rmtree(self._out / REPORT_DAYS / file_name(self._learned), ignore_errors=True)
        write_text(path, text)

    # --- judging

    def _judge(self, policies: Sequence[str], block: str) -> Verdicts:
        return verdicts_on(
            self._workload, self._cluster, policies, self._settings.replay, block, shakes=SHAKES,
            folder=self._out / REPORT_DAYS if block == "report" else None,
        )  # fmt: skip

    def _is_better(self, found: Verdicts, policy: str, other: str) -> bool:
        """Whether the objective is lower, by an interval below 0, neither of bounded slowdown and mean wait clearly higher, and the longest
        wait acceptable. An objective with figures that no day has of its own, such as energy, must be lower in every replay instead.
        """
        if policy == other or found.max_wait(policy) > max(WAIT_ACCEPTED_S, found.max_wait(other) + LONGER_S):
            return False
        objective = self._settings.objective
        if any(one.diff > 0 and one.clear for one in (found.difference(policy, other, score) for score in MEANS)):
            return False
        if totals_in(objective):
            return max(found.costs(policy, other, objective)) < 0
        joint = found.joint(policy, other, objective)
        return joint.clear and joint.relative < -SAME

    # --- explaining

    def _terms(self, rule: FoundRule, baseline: str) -> list[RuleTerm]:
        stretches, rng = self._rule_search.stretches("val"), np.random.default_rng((self._settings.seed, 3))
        drawn = [stretches.draw(rng, SearchSettings.stretch_jobs) for _ in range(EXPLAINING)]
        return ablate(rule, stretches, drawn, baseline, self._settings.objective)

    def _effects(self, recommended: str, baseline: str) -> list[Effect]:
        if recommended == baseline:
            return []
        jobs = self._blocks["report"]
        schedules = [simulate(self._workload, self._cluster, name, **self._simulate_options) for name in (recommended, baseline)]
        measured, other = (measured_jobs(schedule, slice(jobs.start, jobs.stop)) for schedule in schedules)
        return effects(measured, other)
