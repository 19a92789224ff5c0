"""RLlib's PPO on the job problem, unmodified: it knows no masks, so illegal actions become waits.

scripts/rllib && .venv-rllib/bin/python examples/rllib_ppo.py --total-steps 20000
"""

from __future__ import annotations

import argparse
from typing import Any

from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from queuewise.envs import QueuewiseEnv


def make_env(config: dict[str, Any]) -> QueuewiseEnv:
    return QueuewiseEnv("job", illegal="wait", **config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1000, help="steps between updates")
    args = parser.parse_args()
    register_env("queuewise-job", make_env)
    task = {"workload": "bursty", "cluster": "1x8:V100-16", "episode_jobs": 64, "window": 16, "estimates": "oracle", "max_steps": 500}
    config = (
        PPOConfig()
        .environment("queuewise-job", env_config=task)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=args.batch, minibatch_size=128, num_epochs=2)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    steps = 0
    while steps < args.total_steps:
        result = algorithm.train()
        steps = int(result["num_env_steps_sampled_lifetime"])
        print(f"{steps:>9} steps, mean return {result['env_runners'].get('episode_return_mean', float('nan')):.2f}", flush=True)
    algorithm.stop()


if __name__ == "__main__":
    main()
