"""Every registered model keeps the contract of the registry."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import Workload
from queuewise.workload.jobs import COLUMNS
from queuewise.workload.models import generate, model_names, model_parameters


def equal(a: Workload, b: Workload) -> bool:
    return all(np.array_equal(getattr(a, column), getattr(b, column), equal_nan=getattr(a, column).dtype.kind == "f") for column in COLUMNS)


@pytest.mark.parametrize("name", model_names())
def test_same_seed_same_jobs_other_seed_other_jobs(name: str) -> None:
    first, again, other = generate(name, 500, seed=3), generate(name, 500, seed=3), generate(name, 500, seed=4)
    assert len(first) == 500
    assert equal(first, again)
    assert not np.array_equal(first.runtime, other.runtime)


@pytest.mark.parametrize("name", model_names())
def test_defaults_given_as_text_change_nothing(name: str) -> None:
    defaults = {key: value for key, value in model_parameters(name).items() if key != "num_jobs"}
    text: dict[str, Any] = {key: ",".join(map(str, value)) if isinstance(value, tuple) else str(value) for key, value in defaults.items()}
    assert equal(generate(name, 300), generate(name, 300, **text))


@pytest.mark.parametrize("name", model_names())
def test_own_number_of_jobs_without_one_given(name: str) -> None:
    if name == "bench":
        assert model_parameters(name)["num_jobs"] == 1_000_000
    else:
        assert len(generate(name)) >= 400


@pytest.mark.parametrize("name", model_names())
def test_no_line_of_a_model_runs_once_a_job(name: str) -> None:
    """A million jobs are drawn in two seconds only by whole arrays: lines of a loop over jobs would grow with their number."""
    assert lines_to_draw(name, 200_000) - lines_to_draw(name, 100_000) < 100_000 / 2


def lines_to_draw(name: str, num_jobs: int) -> int:
    """Lines of Python that drawing so many jobs executes, libraries left out."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count if "queuewise" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        generate(name, num_jobs)
    finally:
        sys.settrace(before)
    return lines


def test_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'poisson'"):
        generate("poison")


def test_unknown_parameter_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'burst_share'"):
        generate("bursty", burst_shar=0.5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"load": "much"}, "load='much'"),
        ({"gpus": "1.5"}, "not a whole number"),
        ({"sizes": "1,two"}, "a list of int"),
        ({"load": 0}, "has no arrival rate"),
        ({"sizes": "1,2"}, "do not match"),
    ],
)
def test_bad_parameter_is_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate("poisson", 10, **params)


@pytest.mark.parametrize(("num_jobs", "seed"), [(0, 0), (-1, 0), (10, -1)])
def test_numbers_below_what_makes_sense_are_refused(num_jobs: int, seed: int) -> None:
    with pytest.raises(InputError):
        generate("poisson", num_jobs, seed)


def test_booleans_are_read_as_words() -> None:
    assert (generate("bursty", all_at_zero="yes").submit == 0).all()
    assert generate("bursty", all_at_zero="false").submit[-1] > 0
    with pytest.raises(InputError, match="expected true or false"):
        generate("bursty", all_at_zero="maybe")
