"""The environments with the tools of others: both `check_env`s, registration, SB3 and sb3-contrib."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from queuewise.envs import IDS, PRESETS, QueuewiseEnv, QueuewiseVectorEnv
from queuewise.errors import InputError
from stand_in import busy_days, small_cluster

EVERY_ID = sorted(IDS)


@pytest.mark.parametrize("name", EVERY_ID)
@pytest.mark.parametrize("observation", ["dict", "flat"])
def test_gymnasium_accepts_every_id_without_a_warning(name: str, observation: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = gymnasium.make(f"queuewise.envs:{name}", observation=observation)
    check_env(env.unwrapped)
    assert "WARN" not in capsys.readouterr().err


@pytest.mark.parametrize("name", EVERY_ID)
def test_stable_baselines_accepts_every_id_without_a_warning(name: str) -> None:
    """It warns of any two-dimensional part of a Dict, so that view is checked without its advice."""
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    sb3.check_env(gymnasium.make(f"queuewise.envs:{name}").unwrapped, warn=True)
    sb3.check_env(gymnasium.make(f"queuewise.envs:{name}", observation="dict").unwrapped, warn=False)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_gymnasium_accepts_every_preset(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    workload = busy_days(60)
    check_env(QueuewiseEnv(preset=preset, workload=workload, cluster=small_cluster(), episode_jobs=30, block=None), skip_render_check=True)
    assert "WARN" not in capsys.readouterr().err


@pytest.mark.parametrize("name", EVERY_ID)
def test_make_vec_finds_the_native_batch(name: str) -> None:
    envs = gymnasium.make_vec(f"queuewise.envs:{name}", num_envs=3, pool=2)
    assert isinstance(envs, QueuewiseVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observation, info = envs.reset(seed=1)
    assert envs.observation_space.contains(observation)
    assert info["action_mask"].shape[0] == 3
    observation, rewards, *_ = envs.step(envs.legal_actions(seed=1))
    assert envs.observation_space.contains(observation)
    assert rewards.shape == (3,)
    envs.close()


ORDERS_OF_IMPORTS = (
    "import gymnasium", "import gymnasium, queuewise", "import queuewise, gymnasium", "import queuewise.envs, gymnasium",
    "import gymnasium, queuewise.envs", "import queuewise, gymnasium, queuewise.envs",
)  # fmt: skip


def made_after(imports: str, name: str) -> str:
    """The id of the env that Gymnasium makes in a new process, or the last line of its error."""
    program = f"{imports}; print(gymnasium.make({name!r}).spec.id)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize("imports", ORDERS_OF_IMPORTS)
def test_ids_with_the_package_work_after_any_order_of_imports(imports: str) -> None:
    assert made_after(imports, "queuewise.envs:Queuewise/Job-v0") == "Queuewise/Job-v0"


@pytest.mark.parametrize("imports", ORDERS_OF_IMPORTS)
def test_short_ids_work_unless_gymnasium_comes_last_or_alone(imports: str) -> None:
    made = made_after(imports, "Queuewise/Job-v0")
    if imports in ("import gymnasium", "import queuewise, gymnasium"):
        assert "NamespaceNotFound" in made
    else:
        assert made == "Queuewise/Job-v0"


def test_imports_leave_no_hook() -> None:
    program = "import sys; before = list(sys.meta_path); import queuewise; print(sys.meta_path == before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_importing_queuewise_loads_neither_gymnasium_nor_the_engine() -> None:
    program = "import queuewise, sys; print([name for name in ('gymnasium', 'numba', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def small_env(**arguments: Any) -> QueuewiseEnv:
    defaults: dict[str, Any] = {
        "workload": busy_days(120, load=1.2),
        "cluster": small_cluster(),
        "episode_jobs": 30,
        "window": 8,
        "block": None,
    }
    return QueuewiseEnv("job", observation="flat", estimates="noisy:0.3", **defaults | arguments)


def test_illegal_actions_are_errors_by_default() -> None:
    env = small_env()
    env.reset(seed=1)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    with pytest.raises(InputError, match=f"action {illegal} is not legal"):
        env.step(illegal)
    with pytest.raises(InputError, match="outside the action space"):
        env.step(9)


def test_illegal_actions_count_and_wait_if_told_so() -> None:
    env, twin = small_env(illegal="wait"), small_env()
    env.reset(seed=1)
    twin.reset(seed=1)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    observation, _, _, _, info = env.step(illegal)
    np.testing.assert_array_equal(observation, twin.step(8)[0])
    assert info["illegal_actions"] == 1
    with pytest.raises(InputError, match="outside the action space"):
        env.step(9)


def test_sampled_actions_are_legal() -> None:
    env = small_env()
    env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(200):
        if any(env.step(env.action_space.sample())[2:4]):
            env.reset()


@pytest.mark.slow
def test_maskable_ppo_trains() -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    model = sb3_contrib.MaskablePPO("MlpPolicy", small_env(), n_steps=256, batch_size=64, n_epochs=2, seed=1, device="cpu")
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(3000)
    assert model.num_timesteps >= 3000
    assert any((p != q).any() for p, q in zip(model.policy.parameters(), before, strict=True))


@pytest.mark.slow
def test_dqn_trains() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.DQN("MlpPolicy", small_env(illegal="wait"), learning_starts=200, buffer_size=5000, seed=1, device="cpu")
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(3000)
    assert model.num_timesteps >= 3000
    assert any((p != q).any() for p, q in zip(model.policy.parameters(), before, strict=True))


@pytest.mark.slow
def test_the_example_trains(repository: Any, tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, str(repository / "examples" / "cleanrl_ppo.py"), "--total-steps", "8192", "--num-envs", "16"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert "mean bounded slowdown" in done.stdout
