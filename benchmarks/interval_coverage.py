"""How often intervals hold the true difference of two policies, and how often a policy is called better that is not.

    python benchmarks/interval_coverage.py [--again]       15 minutes of one core; rows that the results have are kept

The true ratio of the means is known for two kinds of data:

- Drawn: sums of a score by unit, drawn from distributions with memory from one unit to the next, for two policies that share what is
  busy and differ by factors of their own. `slowdowns` have lognormal tails. In `lasting`, the factors have memory as well. In `waits`,
  nobody waits on 40 % of the days, and tails are heavier. In `geometric`, the logarithms of slowdowns are drawn. `objective` is the
  geometric mean of slowdowns and of waits that go with them, by which `queuewise learn` judges. The truth follows from the distribution,
  in the last two from a million units.
- Replayed: workload models under pairs of policies, by the protocols `days` (default replays with shaken submissions) and `blocks` (random
  windows), as `queuewise evaluate` does. The truth is the ratio over all draws together, and 1 for a random order with two seeds.

A comparison counts as *better* if the first policy is called better than the second at the level of one comparison, and as *worse* if the
second is called better than the first. Where policies are equal, each is a false claim. Written to
benchmarks/results/interval_coverage.json, row by row, and into the table of docs/evaluation.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from render_performance import REPOSITORY, RESULTS, Results, fill, table

from queuewise import load_cluster, simulate
from queuewise.cli.console import note
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.replay_files import to_json
from queuewise.evaluation.statistics import ScoreSeries, TypicalDifference, compare, compare_geometric, compare_scores
from queuewise.evaluation.units import mean_series
from queuewise.runs import write_text
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate
from queuewise.workload.transform import rescale_load

Floats = NDArray[np.float64]
Pair = tuple[ScoreSeries, ScoreSeries]
Row = dict[str, Any]
Judgement = tuple[tuple[float, float] | None, int]  # bounds of the ratio − 1; −1 for better, 1 for worse, 0 for neither
FILE = RESULTS / "interval_coverage.json"
PAGE = REPOSITORY / "docs" / "evaluation.md"

DRAWS = 400  # of drawn data
LEVEL = 20.0  # mean slowdown of a unit beyond 1
BEFORE = 100  # steps before the first unit, so that memory does not begin there


@dataclass(frozen=True)
class Drawn:
    """Distributions of the sums of a score."""

    kind: str
    units: int
    memory: float  # correlation of the logarithm of what is busy, from unit to unit
    ratio: float = 1.0  # of the means of the two policies
    sigma: float = 1.0  # deviation of the logarithm of what is busy
    own: float = 0.3  # deviation of the logarithm of each policy's own factor
    lasts: float = 0.0  # memory of these
    idle: float = 0.0  # share of the units that are 0
    beyond: float = 1.0  # added to the score of every job: slowdowns begin at 1, waits at 0

    @property
    def truth(self) -> float:
        return (self.beyond + self.ratio * LEVEL) / (self.beyond + LEVEL)

    def draw(self, rng: np.random.Generator) -> Pair:
        busy = self._steps(rng, self.memory)
        jobs = np.exp(0.5 * rng.standard_normal(self.units))
        base = LEVEL * np.exp(self.sigma * busy - self.sigma**2 / 2)
        if self.idle:
            base[busy < NormalDist().inv_cdf(self.idle)] = 0.0
        mine, other = (base * np.exp(self.own * self._steps(rng, self.lasts) - self.own**2 / 2) for _ in range(2))
        return ScoreSeries(jobs * (self.beyond + self.ratio * mine), jobs), ScoreSeries(jobs * (self.beyond + other), jobs)

    def _steps(self, rng: np.random.Generator, memory: float) -> Floats:
        steps = rng.standard_normal(self.units + BEFORE)
        for i in range(1, len(steps)):
            steps[i] = memory * steps[i - 1] + np.sqrt(1 - memory**2) * steps[i]
        return steps[BEFORE:]


SIZES = (10, 30, 100, 400)
SLOWDOWNS = partial(Drawn, "slowdowns")
LASTING = partial(Drawn, "lasting", memory=0.6)
WAITS = partial(Drawn, "waits", memory=0.6, sigma=2.5, own=0.7, lasts=0.3, idle=0.4, beyond=0.0)
DRAWN = (
    *(SLOWDOWNS(units, memory) for memory in (0.0, 0.6, 0.9) for units in SIZES),
    *(SLOWDOWNS(units, 0.6, 0.7) for units in SIZES),
    *(LASTING(units, lasts=lasts) for lasts in (0.6, 0.9) for units in SIZES),
    *(WAITS(units, ratio=ratio) for ratio in (1.0, 0.7) for units in SIZES),
)
OBJECTIVE = tuple(replace(SLOWDOWNS(units, 0.6, ratio), kind="objective") for ratio in (1.0, 0.7) for units in SIZES[:3])
GEOMETRIC = tuple(replace(SLOWDOWNS(units, 0.6, ratio), kind="geometric") for ratio in (1.0, 0.7) for units in SIZES[:3])


@dataclass(frozen=True)
class Replayed:
    """A workload model under pairs of policies, by a protocol."""

    protocol: str
    model: str
    cluster: str
    load: float | None  # of the cores
    draws: int
    jobs: int  # of a log, or of a window
    windows: int = 0

    def experiment(self, seed: int) -> Experiment:
        cluster = load_cluster(self.cluster)

        def draw(jobs: int, number: int) -> Workload:
            workload = generate(self.model, jobs, number)
            return workload if self.load is None else rescale_load(workload, self.load, cores=cluster.num_cores)

        jobs = draw(self.jobs, seed)
        if self.protocol == "days":
            return Experiment(jobs, cluster, make_plan("days", jobs, split=SPLIT, shakes=SHAKES), ReplaySettings(estimates="oracle"))
        plan = make_plan("blocks", jobs, num_windows=self.windows, window_jobs=self.jobs, from_model=True, seed=seed)
        return Experiment(jobs, cluster, plan, ReplaySettings(estimates="oracle"), draw)


SPLIT = (0.1, 0.0, 0.9)  # of a short log, so that many days count
SHAKES = 4  # replays of a log
PAIRS = {
    "random, two seeds": ("random+easy, seed 1", "random+easy, seed 2"),
    "conservative / EASY": ("fcfs+conservative", "fcfs+easy"),
    "saf / sjf": ("saf+easy", "sjf+easy"),
    "sjf / fcfs": ("sjf+easy", "fcfs+easy"),
}
SCORES = ("bsld", "wait")
REPLAYED = (
    Replayed("days", "lublin", "flat:256", 0.7, draws=200, jobs=4000),
    Replayed("blocks", "lublin", "flat:256", 0.9, draws=200, jobs=1024, windows=10),
    Replayed("days", "lublin", "flat:256", 0.9, draws=200, jobs=4000),
    Replayed("days", "lublin", "flat:256", 0.5, draws=200, jobs=4000),
    Replayed("blocks", "bursty", "2x8:V100-16", None, draws=200, jobs=256, windows=10),
)


def replay(part: Replayed, seed: int) -> dict[str, list[Cell]]:
    """The cells of all policies of the pairs on one draw. `POLICY, seed 1` is the policy with this seed."""
    experiment = part.experiment(seed)
    found = {}
    for name in dict.fromkeys(name for pair in PAIRS.values() for name in pair):
        policy, _, own = name.partition(", seed ")
        seeded = replace(experiment, settings=replace(experiment.settings, seed=int(own or 0)))
        found[name] = run_experiment(seeded, [policy], simulate, threads=1)
    return found


def series(part: Replayed, cells: Sequence[Cell], score: str) -> ScoreSeries:
    if part.protocol == "days":
        return mean_series([cell.units or {} for cell in cells], [(1.0, score)])
    return ScoreSeries.of_means([cell.scores[score] or 0.0 for cell in cells])


def judge_means(pair: Pair) -> Judgement:
    mine, other = pair
    found = compare(mine, other)
    bounds = None if found.ci95 is None or not other.mean else (found.ci95[0] / other.mean, found.ci95[1] / other.mean)
    return bounds, int(np.sign(found.diff)) if found.clear and not found.same else 0


def judged(found: TypicalDifference) -> Judgement:
    return found.ci95, int(np.sign(found.relative)) if found.clear else 0


def judge_geometric(pair: Pair) -> Judgement:
    return judged(compare_geometric(*pair))


def judge_objective(pair: Pair) -> Judgement:
    mine, other = ([one, waits_with(one)] for one in pair)
    return judged(compare_scores(mine, other, [1.0, 1.0]))


def waits_with(slowdowns: ScoreSeries) -> ScoreSeries:
    """Waits of the same jobs, plus ten minutes: longer where slowdowns are higher, but not in proportion."""
    return ScoreSeries(slowdowns.jobs * (600.0 + 300.0 * (slowdowns.sums / slowdowns.jobs - 1.0) ** 0.8), slowdowns.jobs)


def measure(pairs: Sequence[Pair], truth: float, judge: Callable[[Pair], Judgement] = judge_means) -> Row:
    """Shares of the pairs."""
    held = without = better = worse = 0
    for pair in pairs:
        bounds, called = judge(pair)
        without += bounds is None
        held += bounds is not None and 1 + bounds[0] <= truth <= 1 + bounds[1]
        better += called < 0
        worse += called > 0
    number = len(pairs)
    return {
        "true_ratio": truth, "draws": number, "coverage": held / max(number - without, 1), "without": without / number,
        "better": better / number, "worse": worse / number,
    }  # fmt: skip


def drawn_rows(one: Drawn) -> list[Row]:
    rng = np.random.default_rng(1)
    pairs = [one.draw(rng) for _ in range(DRAWS)]
    return [identity_of(one) | measure(pairs, one.truth)]


def logarithms(one: Drawn, rng: np.random.Generator) -> Pair:
    """The logarithms of slowdowns, weighted by their jobs."""
    mine, other = (ScoreSeries(its.jobs * np.log(its.sums / its.jobs), its.jobs) for its in one.draw(rng))
    return mine, other


def geometric_rows(one: Drawn) -> list[Row]:
    mine, other = logarithms(replace(one, units=1_000_000), np.random.default_rng(2))
    truth = 1.0 if one.ratio == 1.0 else float(np.exp((mine.sums / mine.jobs).mean() - (other.sums / other.jobs).mean()))
    rng = np.random.default_rng(1)
    return [identity_of(one) | measure([logarithms(one, rng) for _ in range(DRAWS)], truth, judge_geometric)]


def objective_rows(one: Drawn) -> list[Row]:
    mine, other = replace(one, units=1_000_000).draw(np.random.default_rng(2))
    waits = waits_with(mine).mean / waits_with(other).mean
    truth = 1.0 if one.ratio == 1.0 else float(np.sqrt(mine.mean / other.mean * waits))
    rng = np.random.default_rng(1)
    return [identity_of(one) | measure([one.draw(rng) for _ in range(DRAWS)], truth, judge_objective)]


def replayed_rows(part: Replayed) -> list[Row]:
    drawn: dict[tuple[str, str], list[Pair]] = {(pair, score): [] for pair in PAIRS for score in SCORES}
    units = 0
    for seed in range(part.draws):
        cells = replay(part, seed)
        for (pair, score), found in drawn.items():
            mine, other = (series(part, cells[name], score) for name in PAIRS[pair])
            found.append((mine, other))
            units += len(mine.sums)
    mean_units = round(units / part.draws / len(drawn))
    rows = []
    for (pair, score), pairs in drawn.items():
        equal = pair.startswith("random")
        truth = 1.0 if equal else sum(mine.sums.sum() for mine, _ in pairs) / sum(other.sums.sum() for _, other in pairs)
        rows.append(identity_of(part) | {"pair": pair, "score": score, "mean_units": mean_units} | measure(pairs, float(truth)))
    return rows


def identity_of(part: Drawn | Replayed) -> Row:
    return {"part": type(part).__name__.lower(), **vars(part)}


def parts() -> Iterator[tuple[Row, Callable[[], list[Row]]]]:
    """What is measured, and how: some of each kind before the rest, which takes longest."""
    for replayed in REPLAYED[:2]:
        yield identity_of(replayed), partial(replayed_rows, replayed)
    for drawn in DRAWN:
        yield identity_of(drawn), partial(drawn_rows, drawn)
    for drawn in GEOMETRIC:
        yield identity_of(drawn), partial(geometric_rows, drawn)
    for drawn in OBJECTIVE:
        yield identity_of(drawn), partial(objective_rows, drawn)
    for replayed in REPLAYED[2:]:
        yield identity_of(replayed), partial(replayed_rows, replayed)


# --- tables


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def shares(row: Row) -> list[str]:
    return [f"{row['true_ratio']:.2f}", *(percent(row[name]) for name in ("coverage", "without", "better", "worse"))]


MEASURED = ("true ratio", "coverage", "no interval", "called better", "called worse")


def coverage_drawn(results: Results) -> str:
    rows = [
        [row["kind"], f"{row['units']}", f"{row['memory']:g}", f"{row['lasts']:g}", *shares(row)]
        for row in results["rows"]
        if row["part"] == "drawn"
    ]
    return table(["data", "units", "memory", "of the difference", *MEASURED], rows)


def coverage_replayed(results: Results) -> str:
    rows = []
    for row in results["rows"]:
        if row["part"] == "replayed":
            load = "" if row["load"] is None else f", load {row['load']:g}"
            rows.append([f"{row['protocol']}, `{row['model']}`{load}", row["pair"], row["score"], f"{row['mean_units']}", *shares(row)])
    return table(["protocol, model", "policies", "score", "units", *MEASURED], rows, left=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="measure rows again that the results have")
    again = parser.parse_args().again
    rows: list[Row] = [] if again or not FILE.exists() else json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    kept: list[Row] = []
    for identity, make in parts():
        mine = [row for row in rows if {key: row.get(key) for key in identity} == identity]
        if not mine:
            mine = make()
            note("\n".join(json.dumps(row) for row in mine))
        kept += mine
        write(kept + [row for row in rows if row not in kept])
    write(kept)


def write(rows: list[Row]) -> None:
    """The results, and the tables that they fill."""
    results: Results = {"rows": rows}
    write_text(FILE, to_json(results))
    write_text(
        PAGE, fill(PAGE.read_text(encoding="utf-8"), results, {"coverage_drawn": coverage_drawn, "coverage_replayed": coverage_replayed})
    )


if __name__ == "__main__":
    main()
