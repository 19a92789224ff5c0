"""Update docs/performance.md and its figures from benchmarks/results/*.json.

    python benchmarks/render_performance.py

The text between `<!-- NAME -->` and `<!-- /NAME -->` in the page is replaced by the table NAME, made here. The rest is fixed text.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from queuewise.report.charts import Chart, Series
from queuewise.report.figures import write_figures
from queuewise.runs import write_text

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
PAGE = REPOSITORY / "docs" / "performance.md"
FIGURES = REPOSITORY / "docs" / "figures"
OTHERS = {"fcfs": "8 – 33,000", "sjf": "–", "fcfs+easy": "61 – 1,540"}  # jobs/s of other public simulators on lublin_256
IN_PROCESSOR_SECONDS = (
    "reading",
    "drawing",
    "user_policy",
    "model",
    "many",
    "interval_coverage",
    "report_size",
)  # parts that report the load of the machine themselves
NOT_YET = "Not measured yet."
SPENT = {"steady_frames_per_s": 0, "frames": 0, "imitation_s": 1, "val_s": 1, "command_s": 0}  # of a run of quick -> digits
DEMO_SECONDS = ("install_s", "compile_s", "replay_s", "total_s")
GROWTH = ("first, µs per job", "last, µs per job", "growth")

Row = dict[str, Any]
Results = dict[str, Any]  # part -> what engine.py wrote


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    rule = ["---" if i < left else "---:" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def prose(text: str) -> str:
    """Text wrapped as everywhere in the docs."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def machine(results: Results) -> str:
    facts = results["rates"]["machine"]
    measured = [part["machine"] for name, part in results.items() if "machine" in part and name not in IN_PROCESSOR_SECONDS]
    busiest = max(facts_of["load_average"] for facts_of in measured)
    return prose(
        f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}, Python {facts['python']}, Numba {facts['numba']}, "
        f"NumPy {facts['numpy']}. Load average at the start of a part: at most {busiest:.1f}."
    )


def default_calls(results: Results) -> str:
    """What the calls that the docs begin with reach, and where the time of `train` goes."""
    if not {"make_vec", "quick"} <= results.keys():
        return NOT_YET
    call, runs = results["make_vec"], results["quick"]["runs"]
    steps = [f"{call[key]:,.0f}" for key in ("steps_per_s", "mean_steps_per_s", "steps", "episodes")]
    vector = table(
        ["call", "threads", "steps/s, best round", "steps/s, all rounds", "steps", "episodes ended"],
        [[f'`gym.make_vec("queuewise.envs:Queuewise/Job-v0", num_envs={call["envs"]})`', f"{call['threads']}", *steps]],
    )
    rows = []
    for number, run in enumerate(runs, 1):
        model = next(name for name in run["report"] if name.startswith("model:"))
        best = min((name for name in run["report"] if name != model), key=lambda name: run["report"][name]["mean"])
        figures = [f"{run[key]:,.{digits}f}" for key, digits in SPENT.items()]
        rows.append([f"{number}", *figures, f"{run['report'][model]['mean']:.1f}", f"{run['report'][best]['mean']:.1f} (`{best}`)"])
    train = table(["run", "steady frames/s", "frames", "imitation, s", "VAL, s", "command, s", "score", "best heuristic"], rows)
    return f"{vector}\n\n{train}{_busy(call)}"


def demo(results: Results) -> str:
    """From a fresh clone to the picture, one row per run."""
    if "demo" not in results:
        return NOT_YET
    part = results["demo"]
    rows = [
        [f"{number}", *(f"{run[key]:.1f}" for key in DEMO_SECONDS), f"{run['disk_mib']:,.0f}"] for number, run in enumerate(part["runs"], 1)
    ]
    columns = ["run", "installation, s", "compilation, s", "replays and picture, s", "whole command, s", "MiB on disk"]
    return table(columns, rows) + _busy(part)


def rates(results: Results) -> str:
    ratios = results["rates"]["cost_of_more_nodes"]
    fewest = min(row["nodes"] for row in results["rates"]["replays"])
    rows = []
    for row in results["rates"]["replays"]:
        cost = 1.0 if row["nodes"] == fewest else ratios[row["policy"]]
        figures = [f"{row[key]:,.0f}" for key in ("nodes", "jobs", "jobs_per_s")] + [f"{row['engine_s']:.2f}", f"{row['call_s']:.2f}"]
        rows.append([f"`{row['policy']}`", *figures, f"{row['max_queue']:,}", f"{cost:.2f}"])
    return table(["policy", "nodes × 8 GPUs", "jobs", "jobs/s", "engine s", "call s", "longest queue", f"time ÷ {fewest} nodes"], rows)


def start_up(results: Results) -> str:
    kernel = results["rates"]["kernel"]
    rows = [[f"`{row['command']}`", f"{row['seconds']:.2f}"] for row in results["start_up"]["commands"]]
    rows += [["import of the engine", f"{kernel['import_s']:.2f}"], ["kernel from the cache", f"{kernel['load_s']:.2f}"]]
    rows += [["compilation, once", f"{kernel['compile_s']:.0f}"]]
    return table(["", "seconds"], rows)


def memory(results: Results) -> str:
    row = results["memory"]
    figures = [f"{row[key]:,.0f}" for key in ("nodes", "jobs", "jobs_per_s")]
    rows = [[f"`{row['policy']}`", *figures, f"{row['peak_memory_mib'] / 1024:.2f}"]]
    return table(["policy", "nodes × 8 GPUs", "jobs", "jobs/s", "peak memory, GiB"], rows)


def report_size(results: Results) -> str:
    row = results["report_size"]
    figures = [f"{row['jobs']:,}", f"{row['cpu_s']:.0f}", *(f"{row[key]:,.0f}" for key in ("peak_memory_mib", "page_mib", "trace_mib"))]
    return table(["jobs", "CPU s", "peak memory, MiB", "report.html, MiB", "trace.json.gz, MiB"], [figures], left=0)


def baselines(results: Results) -> str:
    rows = []
    for row in results["baselines"]["cases"]:
        rate = row["jobs"] / row["baseline_s"]
        figures = [row["nodes"], row["jobs"], row["max_queue"], rate, row["jobs_per_s"], row["ratio"]]
        rows.append([row["baseline"], f"`{row['policy']}`", *(f"{value:,.0f}" for value in figures)])
    columns = ["baseline", "policy", "nodes × 8 GPUs", "jobs", "longest queue", "its jobs/s", "engine jobs/s", "ratio"]
    return table(columns, rows, left=2)


def lublin(results: Results) -> str:
    rows = [
        [f"`{row['policy']}`", f"{row['mean_wait_s']:,.4f}", f"{row['jobs_per_s']:,.0f}", OTHERS[row["policy"]]]
        for row in results["lublin"]["replays"]
    ]
    return table(["policy", "mean wait, s", "Queuewise, jobs/s", "others, jobs/s"], rows)


def conservative(results: Results) -> str:
    rows = [
        [
            f"{row['log']}", row["cluster"], f"`{row['estimates']}`",
            f"{row['jobs']:,}", f"{row['max_queue']:,}", f"{row['jobs_per_s']:,.0f}",
        ]
        for row in results["conservative"]["replays"]
    ]  # fmt: skip
    return table(["log", "cluster", "estimates", "jobs", "longest queue", "jobs/s"], rows, left=3)


def many(results: Results) -> str:
    part = results["many"]
    calls = [(f"`simulate_many`, {row['threads']} thread{'s' * (row['threads'] > 1)}", row) for row in part["replays"]]
    rows = [
        [name, f"{row['number']:,}", f"{row['seconds']:.2f}", f"{row['cpu_s']:.2f}", f"{1e3 * row['cpu_s'] / row['number']:.2f}"]
        for name, row in (*calls, ("`simulate` and `summarise`, one by one", part["alone"]))
    ]
    return table(["", "replays", "seconds", "processor s", "processor ms per replay"], rows) + _busy(part)


def reading(results: Results) -> str:
    part = results["reading"]
    large, info = part["large"], part["info"]
    rows = [
        [f"SWF of {large['rows']:,} rows, {large['file_mib']:,.0f} MiB", *_took(large)],
        ["`queuewise workload info HPC2N-2002-2.2-cln.swf.gz` (202,871 jobs), whole command", *_took(info)],
    ]
    return table(["", "seconds", "processor s", "peak memory, GiB"], rows) + _busy(part)


def drawing(results: Results) -> str:
    part = results["drawing"]
    rows = [[f"`{row['model']}`", f"{row['jobs']:,}", *_took(row)] for row in part["models"]]
    return table(["model", "jobs", "seconds", "processor s", "peak memory, GiB"], rows) + _busy(part)


def _took(row: Row) -> list[str]:
    return [f"{row['seconds']:.2f}", f"{row['cpu_s']:.2f}", f"{row['peak_memory_mib'] / 1024:.2f}"]


def _busy(part: Results) -> str:
    facts = part["machine"]
    return f"\n\nLoad average when this part began: {facts['load_average']:.1f} on {facts['cores']} cores."


def preemption(results: Results) -> str:
    replays = results["preemption"]["replays"]
    rates = table(
        ["policy", "jobs", "jobs/s"], ([f"`{row['policy']}`", f"{row['jobs']:,}", f"{row['jobs_per_s']:,.0f}"] for row in replays)
    )
    logs = table(
        ["log", "policy", "jobs", "mean completion time, s", "preemptions"],
        (
            [row["log"], f"`{row['policy']}`", f"{row['jobs']:,}", f"{row['mean_jct_s']:,.0f}", f"{row['preemptions']:,}"]
            for row in results["preemption"]["logs"]
        ),
        left=2,
    )
    return f"{rates}\n\n{logs}"


def user_policy(results: Results) -> str:
    part = results["user_policy"]
    rows = [
        [f"`{row['policy']}`", row["score"], f"{row['jobs']:,}", f"{row['built_in_s']:.2f}", f"{row['own_s']:.2f}", f"{row['ratio']:.2f}"]
        for row in part["replays"]
    ]
    replays = table(["built-in", "own function", "jobs", "built-in, processor s", "own, processor s", "ratio"], rows, left=2)
    start = part["start"]
    seconds = f"{start['command_s']:.1f} s ({start['processor_s']:.1f} processor s)"
    usable = prose(f"The whole command took {seconds} with a newly written file, of which {start['compile_s']:.1f} s were compilation.")
    return f"{replays}\n\n{usable}{_busy(part)}"


def snapshots(results: Results) -> str:
    rows = [
        [f"`{row['policy']}`", f"{row['nodes']:,}", f"{row['jobs']:,}", f"{row['best_s'] * 1e6:.0f}", f"{row['median_s'] * 1e6:.0f}"]
        for row in results["snapshots"]["snapshots"]
    ]
    return table(["policy", "nodes", "jobs", "best, µs", "median, µs"], rows)


def environments(results: Results) -> str:
    rows = []
    for row in results["environments"]["cases"]:
        figures = [f"{row['nodes']}", f"{row['load']:g}", f"{row['mean_waiting']:.1f}", f"{row['threads']}", f"{row['steps_per_s']:,.0f}"]
        rows.append([*figures, f"{row['bytes_per_env'] / 1024:.0f}"])
    return table(["nodes × 8 GPUs", "load", "jobs waiting", "threads", "steps/s", "KiB per env"], rows, left=0)


def model(results: Results) -> str:
    replay, agreement = results["model"]["replay"], results["model"]["agreement"]
    figures = [f"{replay['jobs']:,}", f"{replay['decisions']:,}", f"{replay['call_s']:.2f}", f"{replay['decision_us']:.1f}"]
    compared = agreement["compared"]
    shares = [f"{100 * agreement[key] / compared:.2f} %" for key in ("close", "close_but_unlike", "differing", "differing_clearly")]
    speed = table(["jobs", "decisions", "call, s", "µs per decision"], [figures], left=0)
    agreed = table(
        ["decisions compared", "close", "close, jobs unlike", "differ", "differ, but not close"], [[f"{compared:,}", *shares]], left=0
    )
    return f"{speed}\n\n{agreed}{_busy(results['model'])}"


def ppo(results: Results) -> str:
    """One row per network, with MaskablePPO's figure where it has the same network."""
    others = {row["net"]: row["frames_per_s"] for row in results["ppo"]["cases"] if row["program"] == "MaskablePPO"}
    rows = []
    for row in results["ppo"]["cases"]:
        if row["program"] == "queuewise":
            net, rate = row["net"], row["frames_per_s"]
            beside = [f"{others[net]:,.0f}", f"{rate / others[net]:.1f}"] if net in others else ["", ""]
            rows.append([f"`{net}`", f"{row['minibatch']:,}", f"{rate:,.0f}", f"{row['play_s']:.2f}", f"{row['learn_s']:.2f}", *beside])
    text = table(["network", "minibatch", "frames/s", "play, s", "learn, s", "MaskablePPO, frames/s", "ratio"], rows)
    return f"{text}\n\nPeak memory of the first, learner and worker together: {results['ppo']['peak_memory_mib'] / 1024:.1f} GiB."


def growth_by_jobs(results: Results) -> str:
    """The first and the last point of each line, beside the growth that n log n allows."""
    rows = []
    for policy, line in _by_policy(results["growth_by_jobs"]["replays"], "jobs").items():
        first, last = line[0]["jobs"], line[-1]["jobs"]
        rows.append([f"`{policy}`", f"{first:,} → {last:,}", *_growth(line), f"{math.log2(last) / math.log2(first):.2f}"])
    return table(["policy", "jobs", *GROWTH, "n log n allows"], rows)


def growth_by_queue(results: Results) -> str:
    """The same for the queue, beside the growth that a linear cost allows."""
    rows = []
    for policy, line in _by_policy(results["growth_by_queue"]["replays"], "max_queue").items():
        first, last = line[0]["max_queue"], line[-1]["max_queue"]
        rows.append([f"`{policy}`", f"{first:,} → {last:,}", *_growth(line), f"{last / first:.0f}"])
    return table(["policy", "longest queue", *GROWTH, "linear allows"], rows)


def growth_of_fgd(results: Results) -> str:
    """One row per number of jobs."""
    rows = [
        [row["submitted"], f"{row['jobs']:,}", f"{row['max_queue']:,}", f"{row['engine_s']:.2f}", f"{_job_us(row):.0f}"]
        for row in sorted(results["growth_of_fgd"]["replays"], key=lambda row: (row["submitted"] == "all at once", row["jobs"]))
    ]
    return table(["submitted", "jobs", "longest queue", "engine, s", "µs per job"], rows)


def _growth(line: list[Row]) -> list[str]:
    before, after = _job_us(line[0]), _job_us(line[-1])
    return [f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]


def _job_us(row: Row) -> float:
    return 1e6 * row["engine_s"] / row["jobs"]  # type: ignore[no-any-return]


def _by_policy(rows: Iterable[Row], x: str) -> dict[str, list[Row]]:
    """The rows of each policy, ascending in x."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row["policy"], []).append(row)
    return {policy: sorted(line, key=lambda row: row[x]) for policy, line in lines.items()}


def charts(results: Results) -> list[Chart]:
    by_jobs, by_queue = results["growth_by_jobs"]["replays"], results["growth_by_queue"]["replays"]
    return [
        _cost_chart("cost-by-jobs", "Cost of a job, by number of jobs", by_jobs, "jobs", "jobs", log_y=False),
        _cost_chart("cost-by-queue", "Cost of a job, by longest queue", by_queue, "max_queue", "longest queue, jobs", log_y=True),
    ]


def _cost_chart(key: str, title: str, rows: list[Row], x: str, x_label: str, *, log_y: bool) -> Chart:
    lines = _by_policy(rows, x).items()
    series = tuple(Series(policy, [row[x] for row in line], [_job_us(row) for row in line]) for policy, line in lines)
    return Chart(key, title, "", "line", x_label, "µs of engine time per job", series, log_x=True, log_y=log_y)


TABLES: dict[str, Callable[[Results], str]] = {
    make.__name__: make
    for make in (
        machine,
        default_calls,
        demo,
        rates,
        start_up,
        memory,
        report_size,
        baselines,
        lublin,
        conservative,
        many,
        preemption,
        user_policy,
        snapshots,
        growth_by_jobs,
        growth_by_queue,
        growth_of_fgd,
        reading,
        drawing,
        environments,
        model,
        ppo,
    )
}


def fill(page: str, results: Results, tables: Mapping[str, Callable[[Results], str]]) -> str:
    for name, make in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"the page has no place for the table {name}: <!-- {name} --> … <!-- /{name} -->")
        text = make(results)
        page = pattern.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    write_text(PAGE, fill(PAGE.read_text(), results, TABLES))
    write_figures(charts(results), FIGURES, ("svg",))


if __name__ == "__main__":
    main()
