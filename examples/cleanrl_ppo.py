"""PPO with action masks in one file, in the manner of CleanRL, on the native vector environment.

python examples/cleanrl_ppo.py --total-steps 200000
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, GRADIENT = 1.0, 0.97, 0.2, 0.01, 0.5, 0.5


class Agent(nn.Module):
    def __init__(self, observation_size: int, num_actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(observation_size, 128), nn.Tanh(), nn.Linear(128, num_actions))
        self.critic = nn.Sequential(nn.Linear(observation_size, 128), nn.Tanh(), nn.Linear(128, 1))

    def policy(self, observation: torch.Tensor, mask: torch.Tensor) -> Categorical:
        return Categorical(logits=self.actor(observation).masked_fill(~mask, -1e8))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--num-steps", type=int, default=128, help="of each env between updates")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        "queuewise.envs:Queuewise/Job-v0", num_envs=args.num_envs, observation="flat",
        workload="bursty", cluster="1x8:V100-16", episode_jobs=64, window=32, estimates="oracle",
    )  # fmt: skip
    size, num_actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    agent = Agent(size, num_actions)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    observations, masks = torch.zeros((*shape, size)), torch.zeros((*shape, num_actions), dtype=torch.bool)
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))

    observation, info = envs.reset(seed=args.seed)
    slowdowns: list[float] = []
    for update in range(1, max(1, args.total_steps // (args.num_steps * args.num_envs)) + 1):
        for step in range(args.num_steps):
            observations[step], masks[step] = torch.from_numpy(observation), torch.from_numpy(info["action_mask"])
            with torch.no_grad():
                policy = agent.policy(observations[step], masks[step])
                actions[step] = action = policy.sample()
                logprobs[step], values[step] = policy.log_prob(action), agent.critic(observations[step]).squeeze(-1)
            observation, reward, terminated, truncated, info = envs.step(action.numpy())
            for e in np.flatnonzero(truncated):  # the episode would have gone on: add what the critic expects of the rest
                with torch.no_grad():
                    reward[e] += GAMMA * agent.critic(torch.from_numpy(info["final_obs"][e])).item()
            rewards[step], dones[step] = torch.from_numpy(reward), torch.from_numpy(terminated | truncated).float()
            if "final_info" in info:
                tally = info["final_info"]["episode_tally"]["mean_bounded_slowdown"]
                slowdowns += tally[info["_final_info"]].tolist()

        with torch.no_grad():  # generalised advantage estimation (Schulman et al., 2016)
            advantages, after = torch.zeros(shape), agent.critic(torch.from_numpy(observation)).squeeze(-1)
            running = torch.zeros(args.num_envs)
            for step in reversed(range(args.num_steps)):
                goes_on = 1.0 - dones[step]
                delta = rewards[step] + GAMMA * after * goes_on - values[step]
                running = delta + GAMMA * LAMBDA * goes_on * running
                advantages[step], after = running, values[step]
            returns = advantages + values

        flat = [tensor.flatten(0, 1) for tensor in (observations, masks, actions, logprobs, advantages, returns)]
        for _ in range(args.epochs):
            for rows in torch.randperm(shape[0] * shape[1]).chunk(args.minibatches):
                obs, mask, act, old, advantage, target = (tensor[rows] for tensor in flat)
                policy = agent.policy(obs, mask)
                ratio = (policy.log_prob(act) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                value_loss = 0.5 * (agent.critic(obs).squeeze(-1) - target).square().mean()
                loss = -gain + VALUE * value_loss - ENTROPY * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), GRADIENT)
                optimizer.step()
        recent = np.mean(slowdowns[-100:]) if slowdowns else float("nan")
        print(f"{update * shape[0] * shape[1]:>9} steps, mean bounded slowdown of the last episodes {recent:.2f}", flush=True)
    envs.close()


if __name__ == "__main__":
    main()
