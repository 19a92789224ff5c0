"""What the settings of a run come to: the reward, baseline, backfill, placement and windows that presets and defaults imply."""

from __future__ import annotations

from typing import Any

from queuewise.agents.scenario import Scenario, model_args
from queuewise.evaluation.protocol import BLOCK_SEEDS, block_jobs
from queuewise.evaluation.scores import parse_score
from queuewise.reading import args_on_cluster


def resolve(scenario: Scenario) -> dict[str, Any]:
    """The task as it is trained, for `--show-config` and `config.toml`."""
    settings, task = scenario.settings, scenario.setup.settings
    baseline = {} if task.baseline is None else {"policy": task.complete(task.baseline.policy), "metric": task.baseline.metric}
    return {
        "score": settings.objective,
        "score_is_better": "higher" if parse_score(settings.objective).higher_is_better else "lower",
        "problem": task.problem,
        "dispatch": task.dispatch,
        "backfill": _backfill(scenario),
        "placement": _placement(scenario),
        "estimates": task.estimates,
        "pay": task.pay,
        "baselines": list(scenario.baselines),
        "reward": [{"term": term.name, "weight": term.weight, "per": list(term.per)} for term in task.reward],
        **({"baseline": baseline} if baseline else {}),
        "windows": _windows(scenario),
        "workload": {"name": settings.workload, **({"args": _args(scenario)} if scenario.from_model else {"jobs": len(scenario.workload)})},
        "cluster": {
            "name": settings.clusters or scenario.cluster.name,
            "nodes": scenario.cluster.num_nodes,
            "gpus": scenario.cluster.num_gpus,
            "cores": scenario.cluster.num_cores,
        },
    }


def play_in_words(scenario: Scenario) -> str:
    """How policies whose names do not say otherwise backfill and place jobs."""
    return f"backfill {_backfill(scenario)}, placement {_placement(scenario)}"


def _backfill(scenario: Scenario) -> str:
    task = scenario.setup.settings
    if task.problem != "host" and task.dispatch == "mask":
        return "none: whatever fits may be chosen"
    return task.backfill or task.filling.backfill


def _placement(scenario: Scenario) -> str:
    task = scenario.setup.settings
    return task.placement if task.problem == "job" else "chosen by the policy"


def _args(scenario: Scenario) -> dict[str, str]:
    """The parameters of the workload model, with those that follow from the cluster."""
    args: dict[str, Any] = args_on_cluster(scenario.settings.workload, scenario.cluster) | model_args(scenario.settings)
    return {name: str(value) for name, value in args.items()}


def _windows(scenario: Scenario) -> dict[str, Any]:
    settings = scenario.settings
    facts: dict[str, Any] = {
        "episode_jobs": settings.episode_jobs,
        "start": "warm" if scenario.setup.source.warm else "empty",
        "train": scenario.setup.source.size,
        "val": settings.val_windows,
        "val_blocks": settings.val_blocks,
        "report": settings.report_windows,
        "report_seed": settings.report_seed,
    }
    if scenario.from_model:
        return facts | {"first_seeds": {block: seeds.start for block, seeds in BLOCK_SEEDS.items()}}
    return facts | {"jobs": {block: len(jobs) for block, jobs in block_jobs(scenario.workload, scenario.split).items()}}
