"""Update docs/results.md and its figure from benchmarks/results/learning/*.json, which learning.py writes.

    python benchmarks/render_results.py

The text between `<!-- NAME -->` and `<!-- /NAME -->` in the page is replaced by the table NAME, made here. The rest is fixed text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from render_performance import FIGURES, REPOSITORY, RESULTS, Results, Row, fill, prose, table

from queuewise.evaluation.statistics import paired_difference
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import write_figures
from queuewise.runs import write_text

PAGE = REPOSITORY / "docs" / "results.md"
STUDENT = {4: 2.776, 32: 2.037}  # 97.5 % quantiles of Student's distribution, by degrees of freedom
Values = NDArray[np.float64]
PUBLISHED = {  # return on its REPORT seeds, one training seed each (gpu-optimizer's README)
    "mlp": {"off": 0.525, "per_gpu": 0.286, "sorted": 0.613, "cdf": 0.342},
    "attn": {"off": 0.577, "per_gpu": 0.589, "sorted": 0.555, "cdf": 0.615},
}


def models(row: Row) -> dict[str, Sequence[float]]:
    return {policy: values for policy, values in row["per_window"].items() if policy.startswith("model:")}


def versus(row: Row, name: str) -> str:
    """One model beside each baseline: means, paired differences with 95 % intervals, verdict."""
    own = row["per_window"][name]
    rows = [[f"**{row['algo'].upper()}**, `{row['net']}`", f"{np.mean(own):.2f}", "", "", "", ""]]
    others = {policy: values for policy, values in row["per_window"].items() if not policy.startswith("model:")}
    for policy, values in sorted(others.items(), key=lambda item: float(np.mean(item[1]))):
        d = paired_difference(own, values)
        low, high = d.ci95 or (np.nan, np.nan)
        verdict = "better" if d.better() else "not better"
        rows.append([f"`{policy}`", f"{np.mean(values):.2f}", f"{d.diff:+.2f}", f"{low:+.2f} … {high:+.2f}", f"{d.win_rate:.0%}", verdict])
    columns = ["policy", f"mean {row['score']}", "model minus policy", "95 % interval", "windows won", "the model is"]
    return table(columns, rows)


def facts(row: Row) -> str:
    windows = len(next(iter(row["per_window"].values())))
    training = f"{row['frames']:,} frames in {row['training_s'] / 60:.1f} minutes on a busy machine; " if "training_s" in row else ""
    return f"\n\n{training}{windows} REPORT windows of {row['jobs']:,} jobs (seed {row['report_seed']})."


def bursty(results: Results) -> str:
    row = results["bursty"]["runs"][0]
    return versus(row, "model:0") + facts(row)


def hosts(results: Results) -> str:
    parts = [f"On `{row['cluster']}`:\n\n{versus(row, 'model:0')}{facts(row)}" for row in results["hosts"]["runs"]]
    lesson = results["hosts"]["runs"][0]["lesson"]
    parts.append(f"The earlier training on ten hosts: {lesson['frames']:,} frames in {lesson['training_s'] / 60:.1f} minutes.")
    return "\n\n".join(parts)


def hetero(results: Results) -> str:
    """Every algorithm: mean over seeds with the least and greatest, and the worst seed against FCFS and random."""
    rows = []
    runs = sorted(results["hetero"]["runs"], key=lambda row: float(np.mean(list(models(row).values()))))
    for row in runs:
        means = [float(np.mean(values)) for values in models(row).values()]
        cells = [f"**{row['algo'].upper()}**", f"{np.mean(means):.2f}", f"{min(means):.2f} … {max(means):.2f}"]
        for baseline in ("fcfs", "random"):
            won = sum(paired_difference(values, row["per_window"][baseline]).better() for values in models(row).values())
            cells.append(f"{won} of {len(means)}")
        rows.append([*cells, f"{row['frames']:,}", f"{row['training_s'] / 60:.1f}"])
    baselines = {policy: values for policy, values in runs[0]["per_window"].items() if not policy.startswith("model:")}
    for policy, values in sorted(baselines.items(), key=lambda item: float(np.mean(item[1]))):
        rows.append([f"`{policy}`", f"{np.mean(values):.2f}", "", "", "", "", ""])
    columns = ["policy", "mean bsld", "least … greatest seed", "seeds better than FCFS", "than random", "frames", "minutes per seed"]
    windows = len(next(iter(runs[0]["per_window"].values())))
    return f"{table(columns, rows)}\n\n{prose(f'{_best_of(runs)} {windows} REPORT windows.')}"


def _best_of(runs: Sequence[Row]) -> str:
    """Which algorithm is best, and whether that is more than the luck of seeds: the intervals cover only the windows."""
    first, *others = [(row["algo"].upper(), np.array(list(models(row).values()))) for row in runs]
    said, settled = [], True
    for name, values in others:
        d = paired_difference(first[1].mean(0), values.mean(0))
        low, high = d.ci95 or (np.nan, np.nan)
        said.append(f"{name} {d.diff:+.2f} ({low:+.2f} … {high:+.2f})")
        settled = settled and first[1].mean(1).max() < values.mean(1).min()
    overlap = (
        "The intervals cover the windows, not the seeds: the seeds of the algorithms overlap, and with so few seeds the order "
        "is not settled."
    )
    luck = "Each of its seeds is better than every seed of the others." if settled else overlap
    best, seed = min((float(means.min()), name) for name, means in ((n, v.mean(1)) for n, v in (first, *others)))
    return (
        f"Best on average: {first[0]}. Its mean over seeds minus that of the others, windows paired: {', '.join(said)}. {luck} "
        f"The best single model was trained by {seed} ({best:.2f})."
    )


def ablation(results: Results) -> str:
    rows, runs = [], results["ablation"]["runs"]
    for row in runs:
        returns = np.array(list(row["returns"].values()))
        scores = np.array([np.mean(values) for values in models(row).values()])
        first, last = np.mean(list(row["training_returns"].values()), axis=0)
        own = [f"{returns.mean():.3f}", _over_seeds(returns, ".3f"), f"{returns.min():.3f} … {returns.max():.3f}"]
        cells = [*own, f"{PUBLISHED[row['net']][row['lookahead']]:.3f}", f"{first:.3f} → {last:.3f}"]
        rows.append([f"`{row['net']}`", f"`{row['lookahead']}`", *cells, f"{scores.mean():,.0f}", _over_seeds(scores, ",.0f")])
    columns = ["network", "lookahead", "mean return", "95 % interval over seeds", "least … greatest seed", "published return"]
    columns += ["return while learning, start → end", "mean jct, s", "95 % interval over seeds"]
    heuristics = {policy: np.mean(values) for policy, values in runs[0]["per_window"].items() if not policy.startswith("model:")}
    beside = ", ".join(f"`{policy}` {value:,.0f}" for policy, value in sorted(heuristics.items(), key=lambda item: float(item[1])))
    heading = prose(f"Mean jct of heuristics on the same windows: {beside}.")
    return f"{table(columns, rows, left=2)}\n\n{heading}\n\n{prose(_noise(runs))}"


def _over_seeds(values: Values, form: str) -> str:
    """Student's interval of the mean over seeds."""
    half = STUDENT[len(values) - 1] * float(values.std(ddof=1)) / np.sqrt(len(values))
    return f"{format(values.mean() - half, form)} … {format(values.mean() + half, form)}"


def _noise(runs: Sequence[Row]) -> str:
    """How far seeds differ, and which differences that explains: of the published figures, and of ours."""
    returns = {f"{row['net']} {row['lookahead']}": np.array(list(row["returns"].values())) for row in runs}
    seeds = len(next(iter(returns.values())))
    pooled = float(np.sqrt(np.mean([values.var(ddof=1) for values in returns.values()])))
    single = 1.96 * np.sqrt(2.0) * pooled
    of_means = STUDENT[len(returns) * (seeds - 1)] * pooled * np.sqrt(2.0 / seeds)
    published = {f"{net} {mode}": value for net, modes in PUBLISHED.items() for mode, value in modes.items()}
    pairs = list(combinations(sorted(published, key=lambda name: published[name]), 2))
    beyond = [f"{a} – {b}" for a, b in pairs if published[b] - published[a] >= single]
    alike = [(a, b) for a, b in pairs if a.split()[0] == b.split()[0]]
    apart = [f"{a} – {b}" for a, b in alike if abs(returns[a].mean() - returns[b].mean()) >= of_means]
    return (
        f"Two runs that differ only in the seed differ by {single:.3f} or less in 95 of 100 cases (1.96 √2 × {pooled:.3f}, the pooled "
        f"deviation over seeds). Of the {len(pairs)} differences between the {len(published)} published figures, which are of one seed "
        f"each, {len(pairs) - len(beyond)} are smaller than that and so within noise. Larger are: {', '.join(beyond) or 'none'}. Between "
        f"our means of {seeds} seeds, lookaheads of one network differ by more than {of_means:.3f} in {len(apart)} of {len(alike)} pairs "
        f"({', '.join(apart) or 'none'}); chance alone produces one in twenty."
    )


OFFERED = {"none": "starts", "stops": "starts, preempts", "moves": "starts, preempts, migrates"}


def preemption(results: Results) -> str:
    """Each network with what it may do: means over seeds, paired with the same network without preemption."""
    runs = results["preemption"]["runs"]
    plain = {row["net"]: _by_seed(row) for row in runs if row["offered"] == "none"}
    rows, apart = [], True
    for row in runs:
        values, other = _by_seed(row), plain[row["net"]]
        means = values.mean(1)
        cells = [f"`{row['net']}`", OFFERED[row["offered"]], f"{means.mean():.3f}", f"{means.min():.3f} … {means.max():.3f}", "", ""]
        if row["offered"] != "none":
            d = paired_difference(values.mean(0), other.mean(0))
            low, high = d.ci95 or (np.nan, np.nan)
            cells[-2:] = [f"{d.diff:+.3f}", f"{low:+.3f} … {high:+.3f}"]
            apart = apart and bool(means.max() < other.mean(1).min())
        rows.append([*cells, f"{row['training_s'] / 60:.1f}"])
    baselines = {policy: values for policy, values in runs[0]["per_window"].items() if not policy.startswith("model:")}
    for policy, values in sorted(baselines.items(), key=lambda item: float(np.mean(item[1]))):
        rows.append([f"`{policy}`", "", f"{np.mean(values):.3f}", "", "", "", ""])
    columns = ["policy", "what it may do", "mean bsld", "least … greatest seed", "minus the same without", "95 % interval"]
    seeds = "Every seed with preemption is better than every seed of the same network without it." if apart else "Seeds overlap."
    windows = len(next(iter(runs[0]["per_window"].values())))
    sizes = f"{runs[0]['frames']:,} frames, {len(runs[0]['seeds'])} seeds; {windows} REPORT windows of {runs[0]['jobs']} jobs."
    return f"{table([*columns, 'minutes per seed'], rows, left=2)}\n\n{prose(f'{seeds} {sizes}')}"


def _by_seed(row: Row) -> Values:
    """[seeds, windows] scores."""
    return np.array(list(models(row).values()))


TABLES: Mapping[str, Callable[[Results], str]] = {make.__name__: make for make in (bursty, hosts, hetero, ablation, preemption)}


def charts(results: Results) -> list[Chart]:
    """VAL over frames in every run of the three algorithms, as bands over seeds."""
    series = []
    for row in results["hetero"]["runs"]:
        curves: Any = list(row["val"].values())
        shared = sorted(set.intersection(*({frames for frames, _ in curve} for curve in curves)))
        values = np.array([[dict(map(tuple, curve))[frames] for frames in shared] for curve in curves])
        mean, low, high = values.mean(0), values.min(0), values.max(0)
        series.append(Series(row["algo"].upper(), shared, mean.tolist(), low.tolist(), high.tolist()))
    return [
        Chart("hetero-learning", "VAL while learning, 56 GPUs", "", "line", "frames", "mean bounded slowdown", tuple(series), log_y=True)
    ]


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "learning").glob("*.json"))}
    made = {name: make for name, make in TABLES.items() if name in results}
    write_text(PAGE, fill(PAGE.read_text(), results, made))
    if "hetero" in results:
        write_figures(charts(results), FIGURES, ("svg",))


if __name__ == "__main__":
    main()
