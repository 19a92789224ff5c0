"""Arguments of environments that would be ignored or misunderstood are refused."""

from __future__ import annotations

from typing import Any

import pytest

from queuewise.envs.single import QueuewiseEnv
from queuewise.envs.vector import QueuewiseVectorEnv
from queuewise.errors import InputError

SMALL: dict[str, Any] = {"workload": "bursty", "cluster": "2x8:V100-16"}


@pytest.mark.parametrize("jobs", ["16", 2.5, 0, True])
def test_the_number_of_jobs_is_a_whole_number(jobs: Any) -> None:
    with pytest.raises(InputError, match="is no number of jobs") as raised:
        QueuewiseEnv("job", **SMALL, episode_jobs=jobs)
    assert "episode_jobs=256" in raised.value.hint


def test_unknown_options_of_reset_are_refused() -> None:
    with pytest.raises(InputError, match="unknown option of reset 'windw'") as raised:
        QueuewiseEnv("job", **SMALL, episode_jobs=4).reset(options={"windw": 1})
    assert "did you mean 'window'?" in raised.value.hint
    with pytest.raises(InputError, match="unknown option of reset 'foo'"):
        QueuewiseVectorEnv(2, "job", **SMALL, episode_jobs=4).reset(options={"foo": 1})
