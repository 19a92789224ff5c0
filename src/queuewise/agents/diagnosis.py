"""Diagnosis of a trained network: it plays training episodes, and its values are compared with what actually followed.

Values are compared with the discounted rewards that followed, up to scale and shift (critics may learn in a scale of
their own). `findings` puts everything unusual into words.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from queuewise.agents.checkpoint import TrainedModel, load_model
from queuewise.agents.model_policies import settings_of
from queuewise.agents.observation_scaling import Scaler
from queuewise.agents.recording import read_rows
from queuewise.agents.scenario import load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.training_envs import TrainingEnvs
from queuewise.errors import InputError
from queuewise.policies.model_file import read_card

DECILES = 10
BATCH = 1024
CRITIC_APART = ("sac",)  # algorithms with separate critic networks: the value head of the policy network was never trained


@dataclass(frozen=True, eq=False)
class PlayedEpisodes:
    """N frames of complete episodes."""

    observations: Tensor  # [N, F] scaled
    masks: Tensor  # [N, A]
    actions: Tensor  # [N]
    returns: NDArray[np.float64]  # [N] discounted rewards from here to the end of the episode
    episodes: int
    cut: int  # truncated episodes: their returns are incomplete, so they are left out


@dataclass(frozen=True)
class Diagnosis:
    """Everything found; `as_json` is what `queuewise diagnose --json` prints."""

    model: str
    episodes: int
    frames: int
    value: dict[str, Any]
    advantage: dict[str, Any]
    actions: dict[str, Any]
    masks: dict[str, Any]
    units: dict[str, Any]
    gradient: dict[str, Any]
    training: dict[str, Any]
    verdict: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def diagnose(path: Path, *, episodes: int = 8, seed: int = 0) -> Diagnosis:
    """Play `episodes` training episodes with the model in `path` and report what is found."""
    card = read_card(path)
    settings, _ = settings_of(card, path)
    setup = load_scenario(settings).setup
    model = load_model(path, TaskShape(settings.env, setup.layout))
    if model.network.outputs > 1:
        raise InputError("learns distributions, but a diagnosis needs means", where=str(path), hint="diagnose a model with d3qn.atoms = 1")
    envs = TrainingEnvs(setup, episodes, seed=seed)
    envs.scaler = Scaler(model.scaling, setup.layout)
    play = play_episodes(model, envs, _gamma(settings), seed)
    envs.close()
    scores, values, units = _evaluate(model, play)
    log_probs = scores.log_softmax(1)
    facts: dict[str, dict[str, Any]] = {
        "value": _value(values.numpy().astype(np.float64), play.returns),
        "advantage": _advantage(log_probs, values.numpy().astype(np.float64), play),
        "actions": _actions(log_probs, play, envs.shape),
        "masks": _masks(play),
        "units": units,
        "gradient": _gradient(model, play),
        "training": _training(path, card),
    }
    if card["algo"] in CRITIC_APART:
        facts["value"] = dict.fromkeys(facts["value"])
    if card["decision"] != "likely":
        facts["actions"] |= {"entropy": None, "entropy_share": None}
    judged = {name: facts[name] for name in ("value", "actions", "masks", "units", "gradient", "training")}
    return Diagnosis(model=str(path), episodes=play.episodes, frames=len(play.actions), **facts, verdict=tuple(findings(**judged)))


def _gamma(settings: TrainSettings) -> float:
    return float(getattr(getattr(settings, settings.algo, None), "gamma", 1.0))


class _EnvStep(NamedTuple):
    """One step of all environments."""

    observations: Tensor
    masks: Tensor
    actions: Tensor
    rewards: NDArray[np.float64]
    discounts: NDArray[np.float64]
    counted: NDArray[np.bool_]  # still in the first episode


@torch.inference_mode()
def play_episodes(model: TrainedModel, envs: TrainingEnvs, gamma: float, seed: int) -> PlayedEpisodes:
    """Play one episode per environment. Actions are sampled where scores are logits, otherwise the best is taken."""
    random, beta = torch.Generator().manual_seed(seed), envs.setup.settings.discount_per_s
    rows = torch.zeros(envs.num_envs, envs.shape.observation_size)
    mask = torch.zeros(envs.num_envs, envs.shape.num_actions, dtype=torch.bool)
    envs.write(rows, mask)
    playing, cut = np.ones(envs.num_envs, np.bool_), np.zeros(envs.num_envs, np.bool_)
    moments: list[_EnvStep] = []
    while playing.any():
        if model.card["decision"] == "likely":
            actions = torch.multinomial(model.network.policy(rows, mask)[0].softmax(1), 1, generator=random).squeeze(1)
        else:
            actions = model.act(rows, mask)
        seen = rows.clone(), mask.clone()
        step = envs.step(actions, rows, mask)
        discount = np.exp(-beta * step.elapsed) if beta else np.full(envs.num_envs, gamma)
        moments.append(_EnvStep(*seen, actions, step.rewards, discount, playing.copy()))
        cut[step.cut[playing[step.cut]]] = True
        playing &= ~step.ended
    following = np.zeros(envs.num_envs)
    returns = []
    for moment in reversed(moments):
        following = np.where(moment.counted, moment.rewards + moment.discounts * following, 0.0)
        returns.append(following)
    kept = np.stack([moment.counted & ~cut for moment in moments])
    rows_kept = torch.from_numpy(kept)
    return PlayedEpisodes(
        observations=torch.stack([moment.observations for moment in moments])[rows_kept],
        masks=torch.stack([moment.masks for moment in moments])[rows_kept],
        actions=torch.stack([moment.actions for moment in moments])[rows_kept],
        returns=np.stack(returns[::-1])[kept],
        episodes=envs.num_envs,
        cut=int(cut.sum()),
    )


class _ReluCounter(TorchFunctionMode):
    """Counts how often the units of every ReLU are active, in the order of the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[Tensor] = []  # [units] rows in which the unit was above zero
        self.rows: list[int] = []
        self._at = 0

    def begin(self) -> None:
        self._at = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.relu, Tensor.relu, functional.relu):
            flat = (result.detach() > 0).flatten(0, -2)
            if self._at == len(self.active):
                self.active.append(torch.zeros(flat.shape[1]))
                self.rows.append(0)
            self.active[self._at] += flat.sum(0)
            self.rows[self._at] += len(flat)
            self._at += 1
        return result


def _evaluate(model: TrainedModel, play: PlayedEpisodes) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Scores and values of all frames, and how active the units were."""
    outputs, watch = [], _ReluCounter()
    with torch.inference_mode(), watch:
        for first in range(0, len(play.actions), BATCH):
            watch.begin()
            outputs.append(model.network.policy(play.observations[first : first + BATCH], play.masks[first : first + BATCH]))
    layers = [
        {"units": len(active), "dead": int((active == 0).sum()), "active_share": float(active.mean() / max(rows, 1))}
        for active, rows in zip(watch.active, watch.rows, strict=True)
    ]
    total, dead = sum(layer["units"] for layer in layers), sum(layer["dead"] for layer in layers)
    scores, values = (torch.cat(parts) for parts in zip(*outputs, strict=True))
    return scores, values, {"dead_share": dead / max(total, 1), "dead": dead, "total": total, "layers": layers}


def _value(values: NDArray[np.float64], returns: NDArray[np.float64]) -> dict[str, Any]:
    """How well values predict returns: expected and actual mean returns of ten groups of frames, by value."""
    slope, shift, correlation = _fit(values, returns)
    order = np.array_split(np.argsort(values, kind="stable"), DECILES)
    groups = [{"expected": float(slope * values[g].mean() + shift), "came": float(returns[g].mean())} for g in order if len(g)]
    return {"correlation": correlation, "explained_variance": correlation**2 if correlation > 0 else 0.0, "calibration": groups}


def _fit(values: NDArray[np.float64], returns: NDArray[np.float64]) -> tuple[float, float, float]:
    """Least squares: returns ≈ slope × values + shift, and the correlation. All zero if there is nothing to fit."""
    if len(values) < 2 or values.std() == 0 or returns.std() == 0:
        return 0.0, float(returns.mean()) if len(returns) else 0.0, 0.0
    correlation = float(np.corrcoef(values, returns)[0, 1])
    slope = correlation * float(returns.std() / values.std())
    return slope, float(returns.mean() - slope * values.mean()), correlation


def _advantage(log_probs: Tensor, values: NDArray[np.float64], play: PlayedEpisodes) -> dict[str, Any]:
    """Whether likely actions did better than the value predicted, in deviations of the returns."""
    slope, shift, _ = _fit(values, play.returns)
    scale = float(play.returns.std()) or 1.0
    advantage = (play.returns - slope * values - shift) / scale
    chosen = log_probs.gather(1, play.actions.unsqueeze(1)).squeeze(1).exp().numpy()
    choice = play.masks.sum(1).numpy() > 1
    likely, unlikely = advantage[choice & (chosen >= 0.5)], advantage[choice & (chosen < 0.5)]
    return {
        "deviation": float(advantage.std()) if len(advantage) else 0.0,
        "of_likely_actions": float(likely.mean()) if len(likely) else None,
        "of_unlikely_actions": float(unlikely.mean()) if len(unlikely) else None,
    }


def _actions(log_probs: Tensor, play: PlayedEpisodes, shape: TaskShape) -> dict[str, Any]:
    chosen, legal = play.actions.numpy(), play.masks.sum(1).numpy()
    choice, waits = legal > 1, chosen == shape.num_actions - 1
    likely = log_probs.clamp(min=-50.0)
    entropy = -(likely.exp() * likely).sum(1).numpy()
    layout, picks = shape.layout, chosen[~waits]
    slots = picks // layout.hosts if shape.problem == "joint" else picks
    hosts = picks % layout.hosts if shape.problem == "joint" else picks
    running = layout.window + layout.stops * np.arange(3)  # first actions that preempt, that migrate, and the next
    avoidable = choice & play.masks[:, -1].numpy()
    return {
        "waits": _share(waits[avoidable]),
        "could_wait": int(avoidable.sum()),
        "entropy": float(entropy[choice].mean()) if choice.any() else 0.0,
        "entropy_share": float((entropy[choice] / np.log(legal[choice])).mean()) if choice.any() else 0.0,
        "slots": None if shape.problem == "host" else _counts(slots, 0, layout.window),
        "hosts": None if shape.problem == "job" else _counts(hosts, 0, layout.hosts),
        "stops": _counts(picks, running[0], running[1]) if layout.stops else None,
        "moves": _counts(picks, running[1], running[2]) if layout.moves else None,
    }


def _counts(values: NDArray[np.int64], first: int, stop: int) -> list[int]:
    """How often each number from `first` to below `stop` occurs."""
    return [int(number) for number in np.bincount(values, minlength=stop)[first:stop]]


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _masks(play: PlayedEpisodes) -> dict[str, Any]:
    legal = play.masks.sum(1).numpy()
    return {
        "legal_mean": float(legal.mean()) if len(legal) else 0.0,
        "legal_most": int(legal.max(initial=0)),
        "forced_share": _share(legal == 1),
        "wait_legal_share": _share(play.masks[:, -1].numpy()),
        "cut_episodes": play.cut,
    }


def _gradient(model: TrainedModel, play: PlayedEpisodes) -> dict[str, Any]:
    """Gradients of a plain policy-gradient and value loss on at most one batch, by part of the network."""
    chosen = torch.randperm(len(play.actions), generator=torch.Generator().manual_seed(0))[:BATCH]
    if not len(chosen):
        return {"norm": 0.0, "finite": True, "without": [], "parts": {}}
    returns = torch.from_numpy(play.returns).float()[chosen]
    targets = (returns - returns.mean()) / (returns.std(correction=0) + 1e-8)
    model.network.zero_grad()
    scores, values = model.network.policy(play.observations[chosen], play.masks[chosen])
    taken = scores.log_softmax(1).gather(1, play.actions[chosen].unsqueeze(1)).squeeze(1)
    loss = -(taken * targets).mean() + 0.5 * (values - targets).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    norms = {name: 0.0 if p.grad is None else float(p.grad.norm()) for name, p in model.network.named_parameters()}
    parts: dict[str, float] = {}
    for name, norm in norms.items():
        part = name.partition(".")[0]
        parts[part] = float(np.hypot(parts.get(part, 0.0), norm))
    weights = all(bool(p.isfinite().all()) for p in model.network.parameters())
    return {
        "norm": float(np.sqrt(sum(norm**2 for norm in norms.values()))),
        "finite": weights and bool(np.isfinite(list(norms.values())).all()),
        "without": [name for name, norm in norms.items() if norm == 0.0],
        "parts": parts,
    }


def _training(path: Path, card: dict[str, Any]) -> dict[str, Any]:
    """The last metrics of training, and medians of how far an update moved the policy, if the run folder is there."""
    homes = (path.parent, path.parent / f"seed-{card['seed']}", path.parent.parent)
    rows = next((rows for home in homes if (rows := read_rows(home))), [])
    names = ("gradient/norm", "value/explained_variance", "policy/kl", "policy/clip_fraction", "policy/entropy")
    last = {name: rows[-1][name] for name in names if rows and rows[-1].get(name) is not None}
    moves = {name: [row[name] for row in rows if row.get(name) is not None] for name in ("policy/kl", "policy/clip_fraction")}
    medians = {f"{name}_median": float(np.median(values)) for name, values in moves.items() if values}
    return last | medians | {"iterations": len(rows)}


# --- findings in words

WORTHLESS, GOOD = 0.1, 0.5  # explained variance of returns
NEARLY_UNIFORM, SETTLED = 0.9, 0.02  # share of the greatest possible entropy
MANY = 1000  # decisions
LEAST_KL, LEAST_CLIPPED = 5e-4, 0.01  # KL divergence and clip fraction of updates that change a policy
OFTEN, NEARLY_ALWAYS, MOSTLY_FORCED, MANY_DEAD = 0.9, 0.95, 0.8, 0.5  # shares

Figures = dict[str, Any]


def findings(value: Figures, actions: Figures, masks: Figures, units: Figures, gradient: Figures, training: Figures) -> list[str]:
    found = [_on_values(value["explained_variance"])]
    if not gradient["finite"]:
        found.append("Weights or gradients are not finite: go back to an earlier checkpoint and use a smaller learning rate.")
    if masks["cut_episodes"]:
        found.append(f"{masks['cut_episodes']} episodes were truncated and are left out: the policy is slow, or the horizon is short.")
    entropy = actions["entropy_share"]  # None where scores are not logits
    if entropy is not None and entropy > NEARLY_UNIFORM:
        found.append(f"It chooses almost at random ({entropy:.0%} of the possible entropy): it has learnt little yet.")
    if entropy is not None and entropy < SETTLED:
        found.append(f"It has settled ({entropy:.1%} of the possible entropy): more training will change little.")
    if actions["waits"] > OFTEN:
        found.append(f"It waits in {actions['waits']:.0%} of the cases where it could start something: check the reward.")
    if actions["waits"] == 0 and actions["could_wait"] >= MANY:
        found.append(f"It never waits, in {actions['could_wait']:,} cases where it could: an order with backfill may do the same.")
    moved = training.get("policy/kl_median", LEAST_KL)
    if moved < LEAST_KL and training.get("policy/clip_fraction_median", 0.0) < LEAST_CLIPPED:
        found.append(f"Updates hardly changed it (KL divergence {moved:.1g} in the median): raise ppo.learning_rate or ppo.epochs.")
    for what in ("slots", "hosts"):
        counts = np.array(actions[what] or [0])
        if counts.max() > NEARLY_ALWAYS * max(counts.sum(), 1):
            found.append(f"Of the {what} it nearly always takes number {counts.argmax()}: a fixed order would do the same.")
    if masks["forced_share"] > MOSTLY_FORCED:
        found.append(f"{masks['forced_share']:.0%} of its steps leave no choice: set task.skip_forced, or increase the load.")
    if units["dead_share"] > MANY_DEAD:
        found.append(f"{units['dead_share']:.0%} of its units are never active: use a smaller learning rate, or a narrower network.")
    if gradient["without"]:
        found.append(f"These parameters do not learn, their gradients are zero: {', '.join(gradient['without'][:3])}.")
    return found if len(found) > 1 else [*found, "Nothing else is unusual."]


def _on_values(explained: float | None) -> str:
    if explained is None:
        return "Its critic is not stored with it: nothing is known about its values."
    variance = f"(explained variance {explained:.2f})"
    if explained < WORTHLESS:
        return f"Values hardly predict returns {variance}: advantages are mostly noise. Train longer, or raise value_weight."
    return f"Values predict returns {'well' if explained >= GOOD else 'in part'} {variance}."
