"""Workload models by name: `generate("bursty", num_jobs=400, seed=1, bursts=3)`.

A model is a file with a function `sample(rng, num_jobs=..., *, parameters with defaults) -> Workload`, and a line in `MODELS`. The path of
a TOML file written by `queuewise.workload.fitting` is accepted wherever a model name is. The same name, parameters and seed give the same
workload, bit for bit. Jobs without users get some (`habits`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.errors import InputError, unknown_name
from queuewise.memory import check_memory
from queuewise.workload.jobs import Workload
from queuewise.workload.models.habits import with_users

MODELS: Mapping[str, str] = {  # name -> module with `sample`, or a file of fitted parameters in this folder
    "poisson": "queuewise.workload.models.poisson",
    "bursty": "queuewise.workload.models.bursty",
    "hetero": "queuewise.workload.models.hetero",
    "eda": "queuewise.workload.models.eda",
    "lublin": "queuewise.workload.models.lublin",
    "bench": "queuewise.workload.models.bench",
    "philly": "philly.toml",
    "venus": "venus.toml",
    "pai": "pai.toml",
}

FITTED = ".toml"
JOB_BYTES = 200  # memory per job: 50 to 120 in the models, the rest for a replay


def model_names() -> tuple[str, ...]:
    return tuple(MODELS)


def generate(name: str, num_jobs: int | None = None, seed: int = 0, **params: Any) -> Workload:
    """Generate jobs from the model `name`, with users. `num_jobs=None` is the default of the model. Parameters may be text."""
    workload = with_users(draw_jobs(name, num_jobs, seed, **params), seed)
    object.__setattr__(workload, "generated", True)  # still private here; a copy would be checked once more
    return workload


def draw_jobs(name: str, num_jobs: int | None = None, seed: int = 0, **params: Any) -> Workload:
    """The jobs of `generate`, with only the users that the model itself draws."""
    sample, defaults = _model(name)
    if num_jobs is not None:
        params["num_jobs"] = num_jobs
    given = {key: _coerce(name, key, value, defaults) for key, value in params.items()}
    if num_jobs is not None and num_jobs < 1:
        raise InputError(f"model {name!r} cannot generate {num_jobs} jobs", hint="num_jobs must be at least 1")
    if seed < 0:
        raise InputError(f"seed {seed} is negative", hint="use 0 or more")
    jobs = given.get("num_jobs", defaults["num_jobs"])
    check_memory(f"model {name!r}: {jobs:,} jobs", jobs * JOB_BYTES, hint="generate fewer jobs with --jobs")
    workload = sample(np.random.default_rng(seed), **given)
    object.__setattr__(workload, "generated", True)
    return workload


def model_parameters(name: str) -> dict[str, Any]:
    """Every parameter of a model with its default, `num_jobs` first."""
    return dict(_model(name)[1])


def _model(name: str) -> tuple[Callable[..., Workload], dict[str, Any]]:
    """The function that draws jobs, and the defaults of its parameters. Files of the user may change, others are read once."""
    return _registered(name) if name in MODELS else _with_defaults(_sampler(name))


@cache
def _registered(name: str) -> tuple[Callable[..., Workload], dict[str, Any]]:
    return _with_defaults(_sampler(name))


def _with_defaults(sample: Callable[..., Workload]) -> tuple[Callable[..., Workload], dict[str, Any]]:
    parameters = inspect.signature(sample).parameters.values()
    return sample, {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def is_model(name: str) -> bool:
    """Whether `generate` accepts this name: a registered model, or a file of fitted parameters."""
    return name in MODELS or name.endswith(FITTED)


def _sampler(name: str) -> Callable[..., Workload]:
    if not is_model(name):
        raise unknown_name("workload model", name, MODELS)
    home = MODELS.get(name, name)
    if home.endswith(FITTED):
        from queuewise.workload.models.fitted import FittedModel

        return FittedModel.load(Path(__file__).parent / home if name in MODELS else Path(home)).sample
    sample: Callable[..., Workload] = import_module(home).sample
    return sample


def _coerce(model: str, key: str, value: Any, defaults: Mapping[str, Any]) -> Any:
    """Convert `value` to the type of the parameter's default, because commands and files pass text and lists."""
    if key not in defaults:
        raise unknown_name(f"parameter of model {model!r}", key, defaults)
    default = defaults[key]
    try:
        if isinstance(default, tuple):
            items = value.split(",") if isinstance(value, str) else value
            return tuple(type(default[0])(item) for item in items)
        if isinstance(default, bool):
            return _boolean(value)
        if isinstance(default, int) and float(value) != int(float(value)):
            raise ValueError("not a whole number")
        return type(default)(float(value)) if isinstance(default, int) else type(default)(value)
    except (TypeError, ValueError) as problem:
        kind = f"a list of {type(default[0]).__name__}" if isinstance(default, tuple) else type(default).__name__
        raise InputError(f"parameter {key}={value!r} of model {model!r} is not {kind} ({problem})", hint=f"default: {default}") from None


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise ValueError("expected true or false")
        return words[value.lower()]
    return bool(value)
