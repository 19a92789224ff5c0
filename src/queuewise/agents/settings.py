"""Settings of training: typed, frozen, with help. TOML presets, command-line flags and what a checkpoint remembers are all made from them.

What a run uses is layered: the defaults below, then a preset (`presets/*.toml`), then a file, then flags. This module imports nothing
heavy, so that help is instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from queuewise.config import Config, parse_toml, validate
from queuewise.errors import unknown_name
from queuewise.reading import Reading

ScheduleName = Literal["constant", "linear", "exponential", "cosine", "warmup_cosine"]


class TaskChoices(Config):
    """What is decided, seen and paid: docs/mdp.md. Left out, the environment's own default counts."""

    preset: str | None = Field(default=None, description="a published scheme of docs/mdp.md to start from, e.g. gpu-optimizer or rltune")
    window: int | None = Field(default=None, ge=1, description="waiting jobs that the policy sees")
    window_order: str | None = Field(default=None, description="order of the window: any that never changes, e.g. fcfs or sjf")
    dispatch: Literal["mask", "commit"] | None = Field(
        default=None, description="mask: only jobs that fit now; commit: hold the machine for any job"
    )
    backfill: str | None = Field(default=None, description="commit: what may start in the shade; host problem: none or greedy")
    placement: str | None = Field(default=None, description="where a chosen job goes (job problem)")
    estimates: str | None = Field(
        default=None, description="oracle, requested, noisy:SIGMA or predicted; default: requested, oracle for models without"
    )
    lookahead: Literal["off", "per_gpu", "sorted", "cdf"] | None = Field(
        default=None, description="how the policy sees when capacity comes free"
    )
    scores: tuple[str, ...] | None = Field(default=None, description="heuristics whose scores are features, e.g. sjf saf")
    host_slots: int | None = Field(default=None, ge=1, description="rows for hosts; default: the cluster's nodes")
    time_scale_s: float | None = Field(default=None, gt=0, description="seconds that the lookahead shows as 1")
    skip_forced: bool | None = Field(default=None, description="pass over instants at which waiting is the only legal action")
    discount_per_s: float | None = Field(default=None, ge=0, description="discount by simulated time instead of gamma a step")
    horizon_factor: float | None = Field(default=None, gt=0, description="when episodes are cut off: see docs/mdp.md")
    max_steps: int | None = Field(default=None, ge=1, description="steps after which an episode is cut off")
    reward: str | None = Field(
        default=None, description="sum of weight*term/divisor, e.g. 'jct/jobs/time_scale + 0.1*noop_feasible'; default: by --score"
    )


class NetworkSettings(Config):
    """Sizes of the network."""

    width: int = Field(default=64, ge=1, description="units of a hidden layer, and of a token's embedding")
    depth: int = Field(default=2, ge=1, description="hidden layers")
    heads: int = Field(default=1, ge=1, description="attention heads (attn, hosts); they divide the width")


class PpoSettings(Config):
    """Proximal policy optimisation (Schulman et al., 2017)."""

    num_envs: int = Field(default=64, ge=1, description="environments that are played at a time")
    steps: int = Field(default=128, ge=1, description="steps of each environment between updates")
    workers: int = Field(
        default=2, ge=1, description="processes, each with its own share of the environments; part of what a seed determines"
    )
    epochs: int = Field(default=4, ge=1, description="passes over what was played, each update")
    minibatch: int = Field(
        default=2048, ge=1, description="frames of one gradient step; divides num_envs × steps, and workers × accumulate divide it"
    )
    accumulate: int = Field(default=1, ge=1, description="pieces, at least, in which a minibatch is worked through, to save memory")
    gamma: float = Field(default=1.0, gt=0, le=1, description="discount a step (1 with rewards that sum to the score is exact)")
    gae_lambda: float = Field(default=0.97, ge=0, le=1, description="generalised advantage estimation: 0 trusts the critic, 1 the return")
    clip: float = Field(default=0.2, gt=0, description="how far the ratio of new to old probability counts")
    learning_rate: float = Field(default=3e-4, gt=0, description="of Adam, at the beginning")
    schedule: ScheduleName = Field(default="linear", description="how the learning rate goes down")
    final_rate: float = Field(default=0.1, ge=0, le=1, description="share of the learning rate that is left at the end")
    warmup: float = Field(default=0.05, ge=0, lt=1, description="share of training in which warmup_cosine rises")
    adam_eps: float = Field(default=1e-5, gt=0, description="epsilon of Adam")
    entropy: float = Field(default=0.01, ge=0, description="weight of the entropy bonus at the beginning")
    final_entropy: float = Field(default=0.0, ge=0, description="weight of the entropy bonus at the end")
    entropy_schedule: ScheduleName = Field(default="linear", description="how the weight of the entropy goes")
    value_weight: float = Field(default=0.5, ge=0, description="weight of the critic's loss")
    clip_value: float | None = Field(
        default=None, gt=0, description="how far a value may move in one update, in standard deviations of returns; default: any"
    )
    normalise_values: bool = Field(default=True, description="the critic learns returns scaled to mean 0 and deviation 1")
    normalise_advantages: bool = Field(default=True, description="scale advantages of an update to mean 0 and deviation 1")
    max_gradient: float = Field(default=0.5, gt=0, description="longest gradient that is applied")
    target_kl: float | None = Field(default=0.03, gt=0, description="end an update when the policy moved further than 1.5 times this")
    temperature: float = Field(
        default=1.0, ge=1, description="exploration noise: logits are divided by this at the beginning, by 1 at the end"
    )
    temperature_decay: float = Field(default=0.99, gt=0, le=1, description="factor on (temperature − 1) each update")
    imitate: str | None = Field(default=None, description="warm start: imitate this heuristic first, e.g. sjf+greedy")
    imitate_frames: int = Field(default=50_000, ge=1, description="frames of the heuristic's play")
    imitate_epochs: int = Field(default=4, ge=1, description="passes over them")


class OffPolicySettings(Config):
    """What algorithms that learn from a replay share."""

    num_envs: int = Field(default=32, ge=1, description="environments that are played at a time")
    steps: int = Field(default=128, ge=1, description="steps of each environment in an iteration")
    updates: int = Field(default=1, ge=1, description="gradient steps after each step of the environments")
    batch: int = Field(default=256, ge=1, description="transitions of a gradient step")
    replay: int = Field(default=200_000, ge=1, description="states that are remembered")
    replay_gib: float = Field(default=1.0, gt=0, description="most memory that the replay may take")
    first_frames: int = Field(default=10_000, ge=1, description="frames played by chance before learning begins")
    gamma: float = Field(default=0.99, gt=0, le=1, description="discount a step")
    n_step: int = Field(default=5, ge=1, description="steps whose rewards count before the critic's expectation does")
    learning_rate: float = Field(default=5e-4, gt=0, description="of Adam, at the beginning")
    schedule: ScheduleName = Field(default="linear", description="how the learning rate goes down")
    final_rate: float = Field(default=0.1, ge=0, le=1, description="share of the learning rate that is left at the end")
    warmup: float = Field(default=0.05, ge=0, lt=1, description="share of training in which warmup_cosine rises")
    max_gradient: float = Field(default=10.0, gt=0, description="longest gradient that is applied")
    target_every: int = Field(default=1, ge=1, description="gradient steps between changes of the target network")
    target_share: float = Field(
        default=0.005, gt=0, le=1, description="how far the target network then moves to the present one; 1 copies it"
    )


class D3qnSettings(OffPolicySettings):
    """Dueling double deep Q-learning (Wang et al., 2016; van Hasselt et al., 2016), with the parts of Rainbow (Hessel et al., 2018)."""

    priority: float = Field(default=0.6, ge=0, le=1, description="how far errors decide what is replayed: 0 not at all")
    importance: float = Field(default=0.4, ge=0, le=1, description="share of that bias which is corrected at the beginning; all at the end")
    epsilon: float = Field(default=1.0, ge=0, le=1, description="share of actions played by chance at the beginning")
    final_epsilon: float = Field(default=0.02, ge=0, le=1, description="share of actions played by chance at the end")
    explore: float = Field(default=0.3, gt=0, le=1, description="share of training in which epsilon goes down")
    noisy: bool = Field(default=False, description="explore by learnt noise on the weights (Fortunato et al., 2018) instead of epsilon")
    atoms: int = Field(default=1, ge=1, description="learn a distribution on so many points (Bellemare et al., 2017: 51); 1: the mean")
    support: float = Field(
        default=5.0, gt=0, description="how far the points reach: deviations of the returns of play by chance, either side of their mean"
    )


class SacSettings(OffPolicySettings):
    """Soft actor-critic (Haarnoja et al., 2018) for discrete actions (Christodoulou, 2019)."""

    entropy: float = Field(default=0.2, ge=0, le=1, description="entropy to keep, as a share of that of all legal actions, in every state")
    temperature: float = Field(default=0.01, gt=0, description="weight of the entropy at the beginning; then it follows the entropy")


class FilterSettings(Config):
    """Trajectory filtering (Zhang et al., RLScheduler, SC 2020): leave out windows that a heuristic finds too easy or too hard."""

    policy: str | None = Field(default=None, description="heuristic that judges windows, e.g. sjf; default: no filter")
    low: float = Field(default=0.0, description="least score of a window that is played")
    high: float = Field(default=float("inf"), description="greatest score of a window that is played")
    tries: int = Field(default=32, ge=1, description="windows drawn before one outside the band is taken after all")


class StopSettings(Config):
    """Early stopping, on VAL."""

    patience: int | None = Field(
        default=None, ge=1, description="stop after so many evaluations on VAL without a better one; default: never"
    )
    threshold: float = Field(default=0.0, ge=0, description="relative gain on the best that counts as better")


class TrainSettings(Config):
    """All that determines a run, but its seed."""

    workload: str = Field(default="bursty", description="a log (the format is detected) or the name of a workload model")
    workload_args: tuple[str, ...] = Field(
        default=(), description="parameters of the workload model, e.g. load=1.1; queuewise workload generate lists them"
    )
    cluster: str | None = Field(
        default=None, description="a preset, flat:N, NxM:kind or a .toml file; default: what the log tells, 1x8:V100-16 for models"
    )
    reading: Reading = Field(default=Reading(), description="how a log is read: as in every command, docs/formats.md")
    env: Literal["job", "host", "joint"] = Field(default="job", description="what a decision is: a job, a host for the next job, or both")
    algo: str = Field(default="ppo", description="how the policy learns: see queuewise train --help for the names")
    net: str = Field(default="kernel", description="network: mlp, kernel, attn, hosts, joint")
    score: str = Field(
        default="bsld", description="what is optimised and reported: bsld, wait, jct, slowdown, util, energy, or a sum: bsld+0.001*wait"
    )
    jobs: int = Field(default=400, ge=1, description="jobs of an episode")
    pool: int | None = Field(default=None, ge=1, description="different episodes to train on; default: no limit")
    frames: int = Field(default=2_000_000, ge=1, description="steps of training, over all environments")
    baselines: tuple[str, ...] = Field(
        default=("fcfs", "fcfs+greedy", "sjf+greedy", "saf+greedy", "random"), description="policies to stand beside on VAL and REPORT"
    )
    eval_every: int = Field(default=10, ge=1, description="iterations between evaluations on VAL")
    val_windows: int = Field(default=20, ge=2, description="windows of VAL")
    report_windows: int = Field(default=60, ge=2, description="windows of REPORT, played once, at the end")
    report_seed: int = Field(default=0, ge=0, description="which windows of REPORT: every number stands for others")
    checkpoint_every: int = Field(default=10, ge=1, description="iterations between checkpoints")
    keep: int = Field(default=2, ge=1, description="checkpoints that are kept")
    logs: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        default=("tensorboard",), description="where figures go beside CSV and JSONL"
    )
    task: TaskChoices = TaskChoices()
    network: NetworkSettings = NetworkSettings()
    ppo: PpoSettings = PpoSettings()
    d3qn: D3qnSettings = D3qnSettings()
    sac: SacSettings = SacSettings()
    filter: FilterSettings = FilterSettings()
    stop: StopSettings = StopSettings()

    @property
    def outputs(self) -> int:
        """Numbers that the network gives for each action."""
        return self.d3qn.atoms if self.algo == "d3qn" else 1


def preset_names() -> tuple[str, ...]:
    """The presets that come with the package; any of them can be copied and changed."""
    return tuple(sorted(path.name.removesuffix(".toml") for path in _home().iterdir()))


def _home() -> Traversable:
    return resources.files("queuewise.agents") / "presets"


def layered(preset: str | None = None, file: Path | None = None, **changes: Any) -> TrainSettings:
    """The defaults, changed by a preset, then by a file, then by `changes` (whose tables may be nested mappings)."""
    data: dict[str, Any] = {}
    source = "settings"
    if preset is not None:
        if preset not in preset_names():
            raise unknown_name("preset", preset, preset_names())
        with resources.as_file(_home() / f"{preset}.toml") as path:
            data, source = parse_toml(path), f"preset {preset}"
    if file is not None:
        data, source = _merged(data, parse_toml(file)), str(file)
    return validate(TrainSettings, _merged(data, changes), source=source)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if nested else value
    return result
