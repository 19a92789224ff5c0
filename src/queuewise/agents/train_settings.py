"""Settings of training: typed, frozen, with help texts. TOML presets, command-line flags and checkpoints all use them.

Settings are layered: the defaults below, then a preset (`presets/*.toml`), then a file, then flags. This module imports
nothing heavy, so `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from pydantic import Field, field_serializer, field_validator, model_validator

from queuewise.agents.algorithm_settings import D3qnSettings, PpoSettings, SacSettings
from queuewise.config import Config, parse_toml, validate
from queuewise.errors import unknown_name
from queuewise.reading import Reading

if TYPE_CHECKING:
    from queuewise.cluster.conditions import Conditions

ALGORITHMS: dict[str, str] = {  # name -> class, made by (setup, settings, seed)
    "ppo": "queuewise.agents.ppo:Ppo",
    "d3qn": "queuewise.agents.d3qn:D3qn",
    "sac": "queuewise.agents.sac:Sac",
}
AUTO = "auto"  # as a score
RETURN = "return"
WITH_OWN_REWARD = ("gpu-optimizer", "drl-scheduler", "lsf")  # published schemes whose reward is no score


class TaskChoices(Config):
    """What is decided, observed and rewarded (docs/mdp.md). Settings left out keep the default of the environment."""

    preset: str | None = Field(default=None, description="a published scheme of docs/mdp.md to start from, e.g. gpu-optimizer or rltune")
    start: Literal["warm", "empty"] | None = Field(
        default=None, description="windows of a log begin warm, with the jobs that wait and run then (default), or on an empty cluster"
    )
    window: int | None = Field(default=None, ge=1, description="number of waiting jobs that the policy sees")
    window_order: str | None = Field(
        default=None, description="order of the jobs in the window: any that does not change over time, e.g. fcfs or sjf"
    )
    dispatch: Literal["mask", "commit", "head"] | None = Field(
        default=None,
        description="mask: only jobs that fit now can be chosen; commit: any job can, and the machine is held for it; "
        "head: any job can be named the head, again at every event, and others are backfilled behind it",
    )
    backfill: str | None = Field(
        default=None,
        description="with commit and head: what may start while the chosen job waits, as in names of policies, e.g. easy:sjf; "
        "default: none, with head that of ppo.imitate, or easy; host problem: none or greedy",
    )
    max_wait: str | None = Field(
        default=None, description="bound on waiting, e.g. 3d: overdue jobs go first; default: none, with head that of ppo.imitate"
    )
    placement: str | None = Field(default=None, description="where a chosen job goes (job problem)")
    estimates: str | None = Field(
        default=None, description="oracle, requested, noisy:SIGMA or predicted; default: requested, or oracle for models without requests"
    )
    shown_estimates: str | None = Field(
        default=None, description="estimates that observations show; default: those of reservations, with head those of ppo.imitate"
    )
    stops: int | None = Field(
        default=None, ge=0, description="number of running jobs that the policy sees and may preempt (job problem, dispatch mask)"
    )
    moves: bool | None = Field(default=None, description="let it also migrate these jobs")
    most_stops: int | None = Field(default=None, ge=1, description="most preemptions and migrations in an episode")
    view: Literal["tokens", "gpu-optimizer", "drl-scheduler", "lsf", "rltune", "rlscheduler"] | None = Field(
        default=None, description="what is observed: tokens, or the vector of a publication, for the mlp"
    )
    lookahead: Literal["off", "per_gpu", "sorted", "cdf"] | None = Field(
        default=None, description="how the policy sees when capacity will be free"
    )
    scores: tuple[str, ...] | None = Field(default=None, description="heuristics whose scores are added as features, e.g. sjf saf")
    host_slots: int | None = Field(default=None, ge=1, description="rows for hosts in the observation; default: one per node")
    time_scale_s: float | None = Field(default=None, gt=0, description="seconds that the lookahead shows as 1")
    one_event: bool | None = Field(default=None, description="each step lets one event pass, a placement as well, as in gpu-optimizer")
    skip_forced: bool | None = Field(default=None, description="skip instants at which waiting is the only legal action")
    discount_per_s: float | None = Field(default=None, ge=0, description="discount per simulated second instead of gamma per step")
    horizon_factor: float | None = Field(default=None, gt=0, description="when episodes are truncated: see docs/mdp.md")
    max_steps: int | None = Field(default=None, ge=1, description="steps after which an episode is truncated")
    pay: Literal["event", "terminal"] | None = Field(default=None, description="when rewards are paid: as they arise, or all at the end")
    reward: str | None = Field(
        default=None, description="sum of weight*term/divisor, e.g. 'jct/jobs/time_scale + 0.1*noop_feasible'; default: by --score"
    )
    baseline: str | None = Field(
        default=None,
        description="policy with which the terms relative and log_ratio, and the divisor baseline, compare the same window; "
        "where its name has no backfill or placement, it has those of the task",
    )
    baseline_metric: Literal["wait", "jct", "slowdown", "bounded_slowdown", "utilisation"] | None = Field(
        default=None, description="what is compared with the baseline; default: that of --score"
    )


MOST_UNITS, MOST_LAYERS = 65_536, 256  # of a network


class NetworkSettings(Config):
    """Size of the network."""

    width: int = Field(default=64, ge=1, le=MOST_UNITS, description="units per hidden layer, and size of a token's embedding")
    depth: int = Field(default=2, ge=1, le=MOST_LAYERS, description="hidden layers")
    layers: str | None = Field(
        default=None, description="units of each hidden layer instead of width and depth, e.g. 32-16-8; the first is the embedding's size"
    )
    heads: int = Field(default=1, ge=1, description="attention heads (attn, hosts); must divide the width")

    @model_validator(mode="before")
    @classmethod
    def _sizes_of_layers(cls, data: Any) -> Any:
        """A list of layers sets width and depth."""
        if not isinstance(data, Mapping) or data.get("layers") is None:
            return data
        parts = str(data["layers"]).split("-")
        if not all(part.isdecimal() and len(part) < 9 and 0 < int(part) <= MOST_UNITS for part in parts):
            raise ValueError(f"layers {data['layers']!r:.60} are not numbers up to {MOST_UNITS} joined by -, for example 32-16-8")
        return {**data, "width": int(parts[0]), "depth": len(parts)}

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the hidden layers."""
        return (self.width,) * self.depth if self.layers is None else tuple(int(part) for part in self.layers.split("-"))


class FilterSettings(Config):
    """Trajectory filtering (Zhang et al., SC 2020): skip windows that are too easy or too hard for a heuristic."""

    policy: str | None = Field(default=None, description="heuristic whose score rates a window, e.g. sjf; default: no filter")
    low: float = Field(default=0.0, description="lowest score of a window that is played")
    high: float = Field(default=float("inf"), description="highest score of a window that is played")
    tries: int = Field(default=32, ge=1, description="windows drawn before one outside the range is played after all")


class StopSettings(Config):
    """Early stopping on VAL."""

    patience: int | None = Field(
        default=None, ge=1, description="stop after this many evaluations on VAL without improvement; default: never"
    )
    threshold: float = Field(default=0.0, ge=0, description="relative improvement on the best that counts")


class TrainSettings(Config):
    """Everything that determines a run except its seed."""

    workload: str = Field(default="bursty", description="a log (the format is detected) or the name of a workload model")
    workload_args: tuple[str, ...] = Field(
        default=(), description="parameters of the workload model, e.g. load=1.1; queuewise workload generate lists them"
    )
    cluster: str | None = Field(
        default=None,
        description="a preset, flat:N, farm:N,cores=A-B,mem=A-B,seed=S, NxM:kind or a .toml file; default: what the log says, or "
        "1x8:V100-16 for models",
    )
    clusters: str | None = Field(
        default=None,
        description="train on many clusters, another one per episode: farm:N,cores=A-B,mem=A-B without a seed; VAL and REPORT play on "
        "--cluster, by default the same with seed=0",
    )
    reading: Reading = Field(default=Reading(), description="how a log is read, as in every command (docs/formats.md)")
    conditions: Annotated[Any, tyro.conf.Fixed, tyro.conf.Suppress] = Field(
        default=None, description="outages, reservations, quotas, … of all windows; --conditions reads them from a file"
    )
    env: Literal["job", "host", "joint"] = Field(
        default="job", description="what a decision chooses: a job, a host for the next job, or both"
    )
    algo: Annotated[str, tyro.conf.arg(metavar="|".join(ALGORITHMS))] = Field(default="ppo", description="learning algorithm")
    net: str = Field(default="kernel", description="network: mlp, kernel, attn, hosts, joint")
    score: str = Field(
        default=AUTO,
        description="what is optimised and reported: bsld, wait, jct, slowdown, util, energy, energy_cost, fairness, a sum such as "
        "bsld+0.001*wait, or return: the task's own reward. auto: return for published schemes with a reward of their own, bsld otherwise",
    )
    episode_jobs: int = Field(default=400, ge=1, description="jobs per episode")
    jobs: int | None = Field(default=None, ge=1, description="logs: use only the first N jobs of the log")
    pool: int | None = Field(default=None, ge=1, description="number of different episodes to train on; default: no limit")
    split: str | None = Field(
        default=None, description="logs: shares of the time span for TRAIN, VAL and REPORT, 0.45,0.2,0.35 by default, as in evaluate"
    )
    frames: int = Field(default=2_000_000, ge=1, description="training steps, summed over all environments")
    baselines: tuple[str, ...] = Field(
        default=("best", "fcfs", "fcfs+easy", "random"),
        description="policies to compare with on VAL and REPORT; best: the three best on VAL of all orders with easy and greedy "
        "backfill, and of the best of these with conservative",
    )
    eval_every: int = Field(default=10, ge=1, description="iterations between evaluations on VAL")
    val_windows: int = Field(default=20, ge=2, description="number of VAL windows")
    val_blocks: int = Field(
        default=1, ge=1, description="VAL is also shown as the least and greatest mean of so many blocks of its windows"
    )
    eval_actions: Literal["greedy", "sampled"] = Field(
        default="greedy", description="how the policy plays VAL and REPORT: its best action, or one drawn by its probabilities"
    )
    report_windows: int = Field(default=60, ge=2, description="number of REPORT windows, played once, at the end")
    report_seed: int = Field(default=0, ge=0, description="seed that selects the REPORT windows")
    checkpoint_every: int = Field(default=10, ge=1, description="iterations between checkpoints")
    keep: int = Field(default=2, ge=1, description="number of checkpoints to keep")
    logs: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        default=("tensorboard",), description="where metrics go besides CSV and JSONL"
    )
    task: TaskChoices = TaskChoices()
    network: NetworkSettings = NetworkSettings()
    ppo: PpoSettings = PpoSettings()
    d3qn: D3qnSettings = D3qnSettings()
    sac: SacSettings = SacSettings()
    filter: FilterSettings = FilterSettings()
    stop: StopSettings = StopSettings()

    @field_validator("conditions", mode="before")
    @classmethod
    def _read_conditions(cls, value: Any) -> Conditions | None:
        """Conditions are imported where there are some: they need NumPy, which --help does without."""
        if not value:
            return None
        from queuewise.cluster.conditions import Conditions

        return value if isinstance(value, Conditions) else Conditions.model_validate(value)

    @field_serializer("conditions")
    def _only_given(self, conditions: Conditions | None) -> dict[str, Any]:
        """A stored run holds what differs from the defaults."""
        given: dict[str, Any] = {} if conditions is None else _written(conditions.model_dump(exclude_defaults=True))
        return given

    @property
    def window_conditions(self) -> Conditions:
        """The conditions of all windows, perfect ones if none are given."""
        from queuewise.cluster.conditions import PERFECT

        return PERFECT if self.conditions is None else self.conditions

    @property
    def objective(self) -> str:
        """The score that is optimised, selected by and reported."""
        if self.score != AUTO:
            return self.score
        return RETURN if self.task.preset in WITH_OWN_REWARD and self.task.reward is None else "bsld"

    @property
    def outputs(self) -> int:
        """Numbers that the network returns per action."""
        return self.d3qn.atoms if self.algo == "d3qn" else 1


def _written(value: Any) -> Any:
    """The same with the text "inf" for infinity, which JSON does not know and settings accept."""
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_written(inner) for inner in value]
    return "inf" if value == float("inf") else value


def preset_names() -> tuple[str, ...]:
    """The presets of the package; they can be copied and changed."""
    return tuple(sorted(path.name.removesuffix(".toml") for path in _home().iterdir()))


def _home() -> Traversable:
    return resources.files("queuewise.agents") / "presets"


def layered(preset: str | None = None, file: Path | None = None, **changes: Any) -> TrainSettings:
    """The defaults, overridden by a preset, then by a file, then by `changes` (tables may be nested mappings)."""
    data: dict[str, Any] = {}
    source = "settings"
    if preset is not None:
        if preset not in preset_names():
            raise unknown_name("preset", preset, preset_names())
        with resources.as_file(_home() / f"{preset}.toml") as path:
            data, source = parse_toml(path), f"preset {preset}"
    if file is not None:
        given = parse_toml(file)
        data, source = _merged(data, renamed(given["settings"]) if given.get("command") == "train" else given), str(file)
    return validate(TrainSettings, _merged(data, changes), source=source)


# What the published schemes were before `--score` decided what is trained: for runs that were stored then
FORMER_TASKS: dict[str, dict[str, Any]] = {
    "gpu-optimizer": {
        "one_event": False,
        "reward": "completed_work/work + remaining_work/span/work + 0.05*noop_feasible + time_left/span + unfinished/work",
    },
    "drl-scheduler": {"reward": "50*priority_completion + 5e-05*age + 1.5*utilisation + 0.3*jct + 0.1*illegal"},
    "lsf": {"reward": "elapsed + 0.02*started + 0.05*host_use + 0.02*host_use_squared"},
    "rltune": {"placement": "tier", "reward": "relative", "baseline": "fcfs@tier", "baseline_metric": "bounded_slowdown"},
    "rlscheduler": {"reward": "bounded_slowdown/jobs"},
}


def renamed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stored run or model in today's words: in those of before, `jobs` is the length of an episode."""
    if "jobs" not in stored or "episode_jobs" in stored:
        return dict(stored)
    task = dict(stored.get("task", {}))
    former = FORMER_TASKS.get(task.get("preset") or "", {})
    task |= {key: value for key, value in former.items() if task.get(key) is None}
    return {"episode_jobs" if key == "jobs" else key: value for key, value in stored.items()} | {"task": task}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if nested else value
    return result
