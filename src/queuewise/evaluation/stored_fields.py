"""What the JSON files of a run folder must hold. A field that is missing or of another type is named, with its file.

Further fields are allowed: later versions may add some.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, FiniteFloat, NonNegativeInt, field_validator

from queuewise.cluster.conditions import Power
from queuewise.config import Config
from queuewise.evaluation.metrics import DISTRIBUTIONS
from queuewise.evaluation.statistics import SAME

Number = FiniteFloat | None
Numbers = dict[str, Number]


class StoredFields(Config):
    model_config = ConfigDict(extra="allow", strict=True)


class ReplayFields(StoredFields):
    """`replay.json` of every command."""

    policy: str
    dispatch: str
    estimates: str | None
    seed: int
    workload: str
    epoch: FiniteFloat
    engine_s: FiniteFloat
    decisions: int
    overstays: dict[str, NonNegativeInt] | None = None
    power: dict[str, Any] = Field(default_factory=dict)
    window: NonNegativeInt = 0

    @field_validator("power")
    @classmethod
    def _is_power(cls, power: dict[str, Any]) -> dict[str, Any]:
        Power(**power)
        return power

    @field_validator("overstays")
    @classmethod
    def _are_rows(cls, overstays: dict[str, int] | None) -> dict[str, int] | None:
        if not all(row.isdecimal() for row in overstays or ()):
            raise ValueError("its keys must be numbers of jobs")
        return overstays


class CellFields(ReplayFields):
    """`replay.json` of `evaluate`."""

    scores: Numbers
    bounds: Numbers
    metrics: dict[str, Number | Numbers]
    finished_digest: str
    packing: dict[str, list[FiniteFloat]] | None = None
    units: dict[str, list[FiniteFloat]] | None = None
    unit_s: Number = None
    geometric_mean: Number = None
    makespan_by_span: Number = None
    seen: bool = False
    rejections: list[str] = Field(default_factory=list)

    @field_validator("metrics")
    @classmethod
    def _counts_jobs(cls, metrics: dict[str, Any]) -> dict[str, Any]:
        if missing := [name for name in ("jobs", "completed") if not isinstance(metrics.get(name), int | float)]:
            raise ValueError(f"lacks {' and '.join(missing)}")
        wrong = [name for name, value in metrics.items() if value is not None and isinstance(value, dict) != (name in DISTRIBUTIONS)]
        if wrong:
            raise ValueError(f"{wrong[0]} must be {'a table' if wrong[0] in DISTRIBUTIONS else 'a number'}")
        return metrics

    @field_validator("units")
    @classmethod
    def _are_equally_long(cls, units: dict[str, list[float]] | None) -> dict[str, list[float]] | None:
        if units is not None and ("jobs" not in units or len({len(values) for values in units.values()}) > 1):
            raise ValueError("needs jobs, and lists of one length")
        return units


class ConditionFields(StoredFields):
    """`[conditions]` of the `config.toml` of `evaluate`."""

    warmup: float = Field(0.0, ge=0, le=1)
    cooldown: float = Field(0.0, ge=0, le=1)
    windows: list[Annotated[list[NonNegativeInt], Field(min_length=2, max_length=4)]] = Field(default_factory=list)


class RunConfigFields(StoredFields):
    """`config.toml` of every command."""

    command: str = ""
    conditions: Any = None

    @field_validator("conditions")
    @classmethod
    def _is_table_in_evaluations(cls, conditions: Any) -> Any:
        """In a run of `simulate`, it is the name of a file."""
        if not isinstance(conditions, str | None):
            ConditionFields.model_validate(conditions)
        return conditions


class SummaryRow(StoredFields):
    """One row of `summary.json`."""

    policy: str
    score: str = ""
    same_below_percent: FiniteFloat = Field(100 * SAME, ge=0, lt=100)


class WaitsFields(StoredFields):
    mean: FiniteFloat
    p50: FiniteFloat
    p90: FiniteFloat
    p99: FiniteFloat


class PartFields(StoredFields):
    key: str
    jobs: int
    recorded: WaitsFields
    replayed: WaitsFields


class ValidationFields(StoredFields):
    """`validation.json`."""

    log: str
    cluster: str
    policy: str
    jobs: int
    recorded: WaitsFields
    replayed: WaitsFields
    rank_correlation: Number
    utilisation_error: FiniteFloat
    verdict: str
    why: list[str]
    by: dict[Literal["partition", "size", "account", "hour of day", "time"], list[PartFields]]
    recorded_quantiles: list[FiniteFloat]
    replayed_quantiles: list[FiniteFloat]
    hours: list[FiniteFloat] = Field(min_length=1)
    recorded_use: list[FiniteFloat]
    replayed_use: list[FiniteFloat]
    resource: str

    @field_validator("by")
    @classmethod
    def _has_time(cls, by: dict[str, Any]) -> dict[str, Any]:
        if "time" not in by:
            raise ValueError("lacks time")
        return by
