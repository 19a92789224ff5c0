"""Update the section "Published systems" of docs/results.md from benchmarks/results/published/*.json, which published.py writes.

    python benchmarks/render_published.py

Trainings that have not been run are named as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from render_performance import REPOSITORY, RESULTS, Row, fill, prose, table

from queuewise.runs import write_text

PAGE = REPOSITORY / "docs" / "results.md"
SEEDS = 3
STUDENT = {1: 12.706, 2: 4.303}  # 97.5 % quantiles of Student's distribution, by degrees of freedom
RULES = {  # name here -> name in gpu-optimizer, return that it publishes on its VAL seeds
    "fcfs+greedy": ("FIFO", 0.369), "sjf+greedy": ("SJF", 0.529), "random": ("RAND_FEAS", 0.525), "largest+greedy": ("–", None),
    "laf+greedy": ("–", None), "smallest+greedy": ("–", None), "priority+greedy": ("–", None),
}  # fmt: skip
PUBLISHED = {  # return on its REPORT seeds, one training seed each (gpu-optimizer's README)
    ("mlp", "off"): 0.525, ("mlp", "per_gpu"): 0.286, ("mlp", "sorted"): 0.613, ("mlp", "cdf"): 0.342,
    ("attn", "off"): 0.577, ("attn", "per_gpu"): 0.589, ("attn", "sorted"): 0.555, ("attn", "cdf"): 0.615,
}  # fmt: skip
Results = dict[str, Any]


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over windows."""
    mean, half = float(np.mean(values)), 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.3f} ({mean - half:.3f} … {mean + half:.3f})"


def over_seeds(means: Sequence[float]) -> str:
    """Mean and 95 % interval over training seeds; without an interval, if there is one seed."""
    mean = float(np.mean(means))
    if len(means) < 2:
        return f"{mean:.3f} (1 seed)"
    half = STUDENT[len(means) - 1] * float(np.std(means, ddof=1)) / len(means) ** 0.5
    return f"{mean:.3f} ({mean - half:.3f} … {mean + half:.3f}, {len(means)} seeds)"


def seeds_of(results: Results, name: str) -> list[Row]:
    return [results[f"{name}-{seed}"] for seed in range(SEEDS) if f"{name}-{seed}" in results]


def gpu_rules(results: Results) -> str:
    found = results.get("rules")
    if found is None:
        return "Not run yet: `python benchmarks/published.py rules`."
    rows = []
    for rule, (there, published) in RULES.items():
        shown = "–" if published is None else f"{published:.3f}"
        rows.append([f"`{rule}`", there, shown, interval(found["val"][rule]), interval(found["report"][rule])])
    return table(["rule", "there", "published, VAL", "here, 60 VAL windows", "here, 60 REPORT windows"], rows, left=2)


def gpu_trained(results: Results) -> str:
    rows, missing = [], []
    for (net, lookahead), published in PUBLISHED.items():
        trained = seeds_of(results, f"gpu_optimizer-{net}-{lookahead}")
        if not trained:
            missing.append(f"{net} {lookahead}")
            continue
        means = [float(np.mean(row["per_window"]["model"])) for row in trained]
        rules = {rule: float(np.mean(values)) for rule, values in trained[0]["per_window"].items() if rule != "model"}
        best = max(rules, key=lambda rule: rules[rule])
        gains = [float(np.mean(row["per_window"]["model"])) - rules[best] for row in trained]
        half = STUDENT[len(gains) - 1] * float(np.std(gains, ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else np.inf
        verdict = "yes" if float(np.mean(gains)) - half > 0 else "no"
        rows.append([f"PPO, `{net}`", lookahead, f"{published:.3f}", over_seeds(means), f"`{best}` {rules[best]:.3f}", verdict])
    text = (
        table(["network", "lookahead", "published, REPORT", "here, REPORT", "best rule here", "better than it"], rows, left=2)
        if rows
        else ""
    )
    return text + _missing(missing, "gpu_optimizer", bool(rows))


def _missing(names: Sequence[str], part: str, after: bool) -> str:
    if not names:
        return ""
    text = prose(f"Not trained yet: {', '.join(names)} (`python benchmarks/published.py {part}`).")
    return f"\n\n{text}" if after else text


def grouped(part: str, names: Sequence[str], digits: int, *, higher: bool = False) -> Callable[[Results], str]:
    """A table with the model and the rules of each training, by mean over REPORT windows."""

    def make(results: Results) -> str:
        rows, missing = [], []
        for name in names:
            trained, title = seeds_of(results, name), name.removeprefix(f"{part}-")
            if not trained:
                missing.append(title)
            elif "refused" in trained[0]:
                rows.append([title, trained[0]["score"], f"not trained: {trained[0]['refused']}", "", "", "", ""])
            else:
                rows.append(_row(title, trained[0]["score"], [row["per_window"] for row in trained], digits, higher))
                if "larger" in trained[0]:
                    larger = [row["larger"]["per_window"] for row in trained]
                    rows.append(_row(f"the same on {trained[0]['larger']['cluster']}", trained[0]["score"], larger, digits, higher))
        columns = ["training", "score", "model", "least … greatest seed", "model − best rule", "seeds", "rules"]
        return (table(columns, rows, left=2) if rows else "") + _missing(missing, part, bool(rows))

    return make


def _row(title: str, score: str, seeds: Sequence[dict[str, list[float]]], digits: int, higher: bool) -> list[str]:
    """The mean of the model's seeds, and its difference from the best rule with a 95 % interval over the seeds."""
    means = [float(np.mean(windows["model"])) for windows in seeds]
    rules = sorted(((float(np.mean(values)), rule) for rule, values in seeds[0].items() if rule != "model"), reverse=higher)
    gains = [mean - rules[0][0] for mean in means]
    difference = f"{np.mean(gains):+,.{digits}f}"
    if len(gains) > 1:
        half = STUDENT[len(gains) - 1] * float(np.std(gains, ddof=1)) / len(gains) ** 0.5
        difference += f" ({np.mean(gains) - half:+,.{digits}f} … {np.mean(gains) + half:+,.{digits}f})"
    listed = ", ".join(f"`{rule}` {figure:,.{digits}f}" for figure, rule in rules)
    spread = f"{min(means):,.{digits}f} … {max(means):,.{digits}f}"
    return [title, score, f"{np.mean(means):,.{digits}f}", spread, difference, f"{len(means)}", listed]


def power(results: Results) -> str:
    found = results.get("power")
    if found is None:
        return "Not run yet: `python benchmarks/published.py power`."
    rows = []
    for case, title in (("busy", "load 0.8"), ("sleeping", "load 0.2, nodes sleep after 10 min")):
        shortest = min(figures["makespan_s"] for figures in found[case].values())
        ranked = sorted(found[case], key=lambda policy: found[case][policy]["kwh"])
        shown = dict.fromkeys(
            ["power@cheapest", next(policy for policy in ranked if policy != "power@cheapest"), "fcfs", "sjf+greedy@fastest"]
        )
        for policy in shown:
            figures = found[case][policy]
            rows.append(
                [title, f"`{policy}`", f"{figures['kwh']:,.0f}", f"{figures['makespan_s'] / shortest:.3f}", f"{ranked.index(policy) + 1}"]
            )
    text = table(["hetero56", "policy", "kWh", "makespan ÷ shortest", f"rank of {len(ranked)} by energy"], rows, left=2)
    return text + f"\n\n{found['jobs']:,} jobs of `hetero`."


def rltune(results: Results) -> str:
    """Utilisation is better if it is higher, so it has a table of its own."""
    by_score = {score: [f"rltune-{log}-{score}" for log in ("philly", "venus")] for score in ("util", "wait", "jct")}
    parts = [grouped("rltune", names, 3, higher=score == "util")(results) for score, names in by_score.items()]
    return "\n\n".join(parts)


ALGOS, LOGS = ("d3qn", "sac", "ppo"), ("hetero56", "low", "medium", "heavy")
TABLES: dict[str, Callable[[Results], str]] = {
    "published_rules": gpu_rules,
    "published_gpu": gpu_trained,
    "published_drl": grouped("drl", [f"drl-{log}-{algo}" for log in LOGS for algo in ALGOS], 0),
    "published_lsf": grouped("lsf", ["lsf-10", "lsf-50"], 2),
    "published_rltune": rltune,
    "published_power": power,
}


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "published").glob("*.json"))}
    write_text(PAGE, fill(PAGE.read_text(), results, TABLES))


if __name__ == "__main__":
    main()
