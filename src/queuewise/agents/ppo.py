"""PPO: proximal policy optimisation (Schulman et al., 2017) with action masks, top to bottom.

One iteration: the workers play `steps` steps of their environments with the current policy, advantages are estimated,
and policy and critic take gradient steps over `epochs` passes, never far from the policy that played. Settings:
`PpoSettings`.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from queuewise.agents import learner
from queuewise.agents.algorithm_settings import PpoSettings
from queuewise.agents.imitation import imitate
from queuewise.agents.learner import DivergedError, LearnerState, Statistics
from queuewise.agents.network import build_network
from queuewise.agents.observation_scaling import Scaler, Scaling, read_scaling
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.training_envs import TrainingEnvs, warm_up, window_filter
from queuewise.agents.values import ReturnScale, advantages, step_discounts
from queuewise.agents.workers import Worker, WorkerPool, check_rollouts, shared, twin
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import InputError

KL_SLACK = 1.5  # an update ends once the divergence exceeds this many times the target
UNLIKELY = -80.0  # log-probability that counts as zero; the exponential of far lower numbers is slow
ENTROPY, DIVERGENCE = 2, 3  # positions in LOSSES
LOSSES = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clip_fraction")


class Ppo:
    decision = "likely"

    def __init__(self, setup: EnvSetup, settings: TrainSettings, seed: int) -> None:
        ppo = settings.ppo
        check_split(ppo)
        torch.set_num_threads(1)  # the workers run in parallel instead
        self.settings, self.total_frames = ppo, settings.frames
        weights, play, sampling, chance, self._imitation_seed = learner.spawn_seeds(seed, 5)
        self._setup = setup
        share = ppo.num_envs // ppo.workers
        windows = window_filter(setup, settings.filter, settings.objective)
        groups = [TrainingEnvs(setup, share, seed=play, first_env=number * share, draw=windows) for number in range(ppo.workers)]
        check_rollouts(ppo.steps, ppo.num_envs, groups[0].shape)
        self.network = build_network(settings.net, groups[0].shape, settings.network, seed=weights)
        for parameter in self.network.parameters():
            parameter.data = shared(parameter.data)
        networks = [self.network, *(twin(self.network) for _ in groups[1:])]
        streams = learner.spawn_seeds(sampling, ppo.workers)
        self.pool = WorkerPool([Worker(*parts[:2], ppo.steps, parts[2]) for parts in zip(groups, networks, streams, strict=True)], self)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=ppo.learning_rate, eps=ppo.adam_eps, fused=True)
        self.returns = ReturnScale()
        self.returns.moments = shared(self.returns.moments)
        self.scaling = warm_up(groups, chance)
        self.frames = self.iterations = 0
        self._start_play()

    def rescale(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.pool.stop()
        self._start_play()

    def _start_play(self) -> None:
        for worker in self.pool.workers:
            worker.envs.scaler = Scaler(self.scaling, worker.envs.shape.layout)
            worker.write_state()

    # --- one iteration

    def iterate(self) -> Statistics:
        learnt = self._imitate() if self.iterations == 0 and self.settings.imitate else {}
        began = time.perf_counter()
        tallies = self.pool.each("play", self.temperature)
        self._estimate_returns()
        played = time.perf_counter()
        statistics = self._update()
        self.frames += self.settings.num_envs * self.settings.steps
        self.iterations += 1
        episodes = learner.episode_means([tally for some in tallies for tally in some])
        return statistics | learnt | episodes | {"time/play_s": played - began, "time/learn_s": time.perf_counter() - played}

    def _imitate(self) -> Statistics:
        began = time.perf_counter()
        ppo, policy = self.settings, self.settings.imitate or ""
        sizes = {"frames": ppo.imitate_frames, "epochs": ppo.imitate_epochs}
        same = imitate(self.network, self._setup, self.scaling, policy, **sizes, seed=self._imitation_seed)
        return {"imitation/same": same, learner.IMITATION_S: time.perf_counter() - began}

    @property
    def progress(self) -> float:
        return min(self.frames / (self.settings.schedule_frames or self.total_frames), 1.0)

    @property
    def temperature(self) -> float:
        return 1.0 + (self.settings.temperature - 1.0) * self.settings.temperature_decay**self.iterations

    @torch.inference_mode()
    def play(self, worker: Worker, temperature: float) -> list[dict[str, float]]:
        """Play T steps of the worker's environments, sampling actions; return the tallies of finished episodes."""
        rollout, envs, beta = worker.rollout, worker.envs, worker.envs.setup.settings.discount_per_s
        tallies: list[dict[str, float]] = []
        rollout.observations[0].copy_(rollout.observations[-1])
        rollout.masks[0].copy_(rollout.masks[-1])
        for t in range(len(rollout.actions)):
            logits, values = worker.network.policy(rollout.observations[t], rollout.masks[t])
            log_probs = (logits / temperature).log_softmax(1)
            actions = draw(log_probs, rollout.masks[t], worker.random)
            step = envs.step(actions, rollout.observations[t + 1], rollout.masks[t + 1])
            rollout.actions[t] = actions
            rollout.log_probs[t] = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
            rollout.values[t] = self._in_rewards(values)
            rollout.rewards[t] = torch.from_numpy(step.rewards)
            discount = torch.from_numpy(step_discounts(step.elapsed, self.settings.gamma, beta)).float()
            if len(step.cut):  # truncated: the value of the rest of the episode is part of the reward
                rest = self._in_rewards(worker.network.policy(step.cut_observations, step.cut_masks)[1])
                rollout.rewards[t, step.cut] += discount[step.cut] * rest
            rollout.discounts[t] = discount * torch.from_numpy(~step.ended)
            tallies += step.tallies
        rollout.count_shown()
        rollout.values[-1] = self._in_rewards(worker.network.policy(rollout.observations[-1], rollout.masks[-1])[1])
        return tallies

    def _in_rewards(self, outputs: Tensor) -> Tensor:
        """Outputs of the critic in the unit of rewards."""
        return self.returns.denormalise(outputs) if self.settings.normalise_values else outputs

    def _in_outputs(self, returns: Tensor) -> Tensor:
        return self.returns.normalise(returns) if self.settings.normalise_values else returns

    def _estimate_returns(self) -> None:
        """Compute advantages and targets of the critic, on one scale for all workers."""
        rollouts = [worker.rollout for worker in self.pool.workers]
        estimates = [advantages(r.rewards, r.values, r.discounts, self.settings.gae_lambda) for r in rollouts]
        targets = [estimate + rollout.values[:-1] for estimate, rollout in zip(estimates, rollouts, strict=True)]
        if self.settings.normalise_values:
            self.returns.update(torch.cat(targets))
        everything = torch.cat(estimates)
        mean, deviation = (everything.mean(), everything.std() + 1e-8) if self.settings.normalise_advantages else (0.0, 1.0)
        for rollout, estimate, target in zip(rollouts, estimates, targets, strict=True):
            rollout.advantages.copy_((estimate - mean) / deviation)
            rollout.targets.copy_(self._in_outputs(target))

    def _update(self) -> Statistics:
        ppo = self.settings
        rate = learner.scheduled(ppo.schedule, self.progress, ppo.learning_rate, ppo.final_rate * ppo.learning_rate, ppo.warmup)
        entropy = learner.scheduled(ppo.entropy_schedule, self.progress, ppo.entropy, ppo.final_entropy)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        sums, norm, steps = torch.zeros(len(LOSSES)), 0.0, 0
        first_entropy: float | None = None
        for epoch in range(ppo.epochs):
            self.pool.each("shuffle")
            for number in range(ppo.num_envs * ppo.steps // ppo.minibatch):
                losses = self._differentiate(entropy, epoch, number)
                first_entropy = float(losses[ENTROPY]) if first_entropy is None else first_entropy
                jumped = ppo.entropy_jump is not None and abs(float(losses[ENTROPY]) - first_entropy) > ppo.entropy_jump
                if jumped or (ppo.target_kl > 0 and losses[DIVERGENCE] > KL_SLACK * ppo.target_kl):
                    return self._statistics(sums, norm, steps, rate, entropy)
                norm += float(nn.utils.clip_grad_norm_(self.pool.workers[0].parameters, ppo.max_gradient))
                self.optimiser.step()
                sums += losses
                steps += 1
        return self._statistics(sums, norm, steps, rate, entropy)

    def shuffle(self, worker: Worker) -> None:
        """Divide the worker's frames into random minibatches."""
        order = torch.randperm(worker.rollout.frames, generator=worker.random)
        worker.minibatches = torch.split(order, self.settings.minibatch // self.settings.workers)

    def _differentiate(self, entropy: float, epoch: int, number: int) -> Tensor:
        """Compute the gradients of one minibatch, of which every worker has a share; return LOSSES."""
        losses = torch.tensor(self.pool.each("differentiate", number, entropy, self.temperature)).mean(0)
        if not losses.isfinite().all():
            raise DivergedError(
                f"the loss is {', '.join(f'{name} {value:g}' for name, value in zip(LOSSES, losses.tolist(), strict=True))} in iteration "
                f"{self.iterations + 1}, epoch {epoch + 1}, minibatch {number + 1}",
                hint="use a smaller learning_rate, or a smaller max_gradient",
            )
        self.pool.add_gradients()
        return losses

    def differentiate(self, worker: Worker, number: int, entropy: float, temperature: float) -> list[float]:
        """Compute the gradients of the worker's share of a minibatch; return LOSSES."""
        worker.zero_gradients()
        chosen, losses = worker.minibatches[number], torch.zeros(len(LOSSES))
        for piece in worker.rollout.by_length(chosen, self.settings.accumulate):
            loss, figures = self._loss(worker, piece, entropy, temperature)
            share = len(piece) / len(chosen)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            losses += figures * share
        return losses.tolist()

    def _loss(self, worker: Worker, chosen: Tensor, entropy_weight: float, temperature: float) -> tuple[Tensor, Tensor]:
        ppo = self.settings
        observations, masks, actions, old_log_probs, advantage, targets, old_values = worker.rollout.rows(chosen)
        logits, values = worker.network.policy(observations, masks)
        log_probs = (logits / temperature).log_softmax(1)
        log_ratio = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1) - old_log_probs
        ratio = log_ratio.exp()
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(1.0 - ppo.clip, 1.0 + ppo.clip) * advantage).mean()
        errors = (values - targets).square()
        if ppo.clip_value is not None:
            old = self._in_outputs(old_values)
            errors = torch.max(errors, (old + (values - old).clamp(-ppo.clip_value, ppo.clip_value) - targets).square())
        value_loss = 0.5 * errors.mean()
        likely = log_probs.clamp(min=UNLIKELY)  # illegal actions add nothing either way
        entropy = -(likely.exp() * likely).sum(1).mean()
        loss = policy_loss + ppo.value_weight * value_loss - entropy_weight * entropy
        with torch.no_grad():
            divergence = (ratio - 1.0 - log_ratio).mean()  # never negative, low variance (Schulman, 2020)
            clipped = ((ratio - 1.0).abs() > ppo.clip).float().mean()
            return loss, torch.stack([policy_loss.detach(), value_loss.detach(), entropy.detach(), divergence, clipped])

    def _statistics(self, sums: Tensor, norm: float, steps: int, rate: float, entropy: float) -> Statistics:
        mean = sums / max(steps, 1)
        rollouts = [worker.rollout for worker in self.pool.workers]
        targets = torch.cat([rollout.targets for rollout in rollouts])
        missed = targets - self._in_outputs(torch.cat([rollout.values[:-1] for rollout in rollouts]))
        return {
            **dict(zip(LOSSES, mean.tolist(), strict=True)),
            "value/explained_variance": float(1.0 - missed.var() / targets.var().clamp(min=1e-12)),
            "gradient/norm": norm / max(steps, 1),
            "gradient/steps": float(steps),
            "schedule/learning_rate": rate,
            "schedule/entropy": entropy,
            "schedule/temperature": self.temperature,
        }

    # --- the rest of the Learner interface

    def act(self, observations: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return learner.pick_likely(self.network.policy(observations, mask)[0])

    def state(self) -> LearnerState:
        tensors = learner.module_tensors(self.network, "network") | learner.optimiser_tensors(self.optimiser, "optimiser")
        tensors |= self.scaling.tensors() | {"returns": self.returns.moments.clone()}
        for number, own in enumerate(self.pool.each("worker_state")):
            tensors |= {f"worker.{number}.{name}": torch.from_numpy(value) for name, value in own.items()}
        return LearnerState(tensors, {"frames": self.frames, "iterations": self.iterations})

    def worker_state(self, worker: Worker) -> dict[str, NDArray[Any]]:
        """The state that only the worker's process has. The environments are called `stage` in checkpoints."""
        tensors = {"random": worker.random.get_state()} | {f"stage.{name}": tensor for name, tensor in worker.envs.state().items()}
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def restore(self, state: LearnerState) -> None:
        self.pool.stop()
        learner.load_module(self.network, state.tensors, "network")
        learner.load_optimiser(self.optimiser, state.tensors, "optimiser")
        self.scaling = read_scaling(state.tensors)
        self.returns.moments.copy_(state.tensors["returns"])
        for number, worker in enumerate(self.pool.workers):
            worker.random.set_state(state.tensors[f"worker.{number}.random"])
            worker.envs.restore(learner.within(state.tensors, f"worker.{number}.stage"))
        self.frames, self.iterations = state.facts["frames"], state.facts["iterations"]
        self._start_play()

    def close(self) -> None:
        self.pool.close()


def draw(log_probs: Tensor, mask: Tensor, random: torch.Generator) -> Tensor:
    """[B] sampled legal actions: where a uniform number falls in the cumulative probabilities."""
    heights = (log_probs.clamp(min=UNLIKELY).exp() * mask).cumsum(1)
    level = torch.rand(len(mask), 1, generator=random) * heights[:, -1:]
    actions = (heights <= level).sum(1)
    rounded_up = actions == mask.shape[1]  # the product may round to the whole height
    return torch.where(rounded_up, log_probs.argmax(1), actions)


def check_split(ppo: PpoSettings) -> None:
    """Refuse sizes that do not divide each other, and suggest some that do."""
    frames, unit = ppo.num_envs * ppo.steps, ppo.workers * ppo.accumulate
    if ppo.num_envs % ppo.workers:
        raise InputError(
            f"{ppo.num_envs} environments cannot be divided among {ppo.workers} workers",
            hint="set ppo.num_envs to a multiple of ppo.workers",
        )
    if frames % ppo.minibatch or ppo.minibatch % unit:
        pieces = frames // unit if frames % unit == 0 else 0  # a minibatch has as many units as divide them
        valid = [unit * part for low in range(1, math.isqrt(pieces) + 1) if pieces % low == 0 for part in {low, pieces // low}]
        nearest = sorted(sorted(valid, key=lambda size: abs(size - ppo.minibatch))[:3])
        raise InputError(
            f"minibatches of {ppo.minibatch} frames do not divide the {frames} frames of an update ({ppo.num_envs} environments × "
            f"{ppo.steps} steps) evenly, or cannot be divided evenly among {ppo.workers} workers × {ppo.accumulate} pieces",
            hint=f"ppo.minibatch can be {', '.join(map(str, nearest)) or 'nothing with these: change num_envs or steps'}",
        )
