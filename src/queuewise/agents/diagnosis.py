"""Looking into a trained network: it plays some training episodes as it would in training, and what it thought is held against what came.

Values are compared with the discounted rewards that really followed, up to scale and shift (critics may learn in a scale of their own).
`verdict` puts what is conspicuous into words.
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

from queuewise.agents.grounds import make_grounds
from queuewise.agents.models import Model, load_model
from queuewise.agents.playing import settings_of
from queuewise.agents.recording import read_rows
from queuewise.agents.scaling import Scaler
from queuewise.agents.settings import TrainSettings
from queuewise.agents.spec import Spec
from queuewise.agents.stage import Stage
from queuewise.agents.verdict import verdict
from queuewise.errors import InputError
from queuewise.policies.model_file import read_card

DECILES = 10
BATCH = 1024
CRITIC_APART = ("sac",)  # algorithms whose critics are networks of their own: the value that the policy's tells was never trained


@dataclass(frozen=True, eq=False)
class Play:
    """N frames of whole episodes."""

    observations: Tensor  # [N, F] scaled
    masks: Tensor  # [N, A]
    actions: Tensor  # [N]
    returns: NDArray[np.float64]  # [N] discounted rewards from here to the episode's end
    episodes: int
    cut: int  # episodes that did not end of themselves: their returns lack the rest, and are left out


@dataclass(frozen=True)
class Diagnosis:
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
    """Play `episodes` training episodes with the model in `path` and tell what is found."""
    card = read_card(path)
    settings, _ = settings_of(card, path)
    setup = make_grounds(settings).setup
    model = load_model(path, Spec(settings.env, setup.layout))
    if model.network.outputs > 1:
        raise InputError("learns distributions, and a diagnosis reads means", where=str(path), hint="diagnose a model with d3qn.atoms = 1")
    stage = Stage(setup, episodes, seed=seed)
    stage.scaler = Scaler(model.scaling, setup.layout)
    play = play_episodes(model, stage, _gamma(settings), seed)
    stage.close()
    scores, values, units = _think(model, play)
    log_probs = scores.log_softmax(1)
    facts: dict[str, dict[str, Any]] = {
        "value": _value(values.numpy().astype(np.float64), play.returns),
        "advantage": _advantage(log_probs, values.numpy().astype(np.float64), play),
        "actions": _actions(log_probs, play, stage.spec),
        "masks": _masks(play),
        "units": units,
        "gradient": _gradient(model, play),
        "training": _training(path, card),
    }
    if card["algo"] in CRITIC_APART:
        facts["value"] = dict.fromkeys(facts["value"])
    if card["decision"] != "likely":
        facts["actions"] |= {"entropy": None, "entropy_share": None}
    judged = {name: facts[name] for name in ("value", "actions", "masks", "units", "gradient")}
    return Diagnosis(model=str(path), episodes=play.episodes, frames=len(play.actions), **facts, verdict=tuple(verdict(**judged)))


def _gamma(settings: TrainSettings) -> float:
    return float(getattr(getattr(settings, settings.algo, None), "gamma", 1.0))


class _Moment(NamedTuple):
    """One step of all environments."""

    observations: Tensor
    masks: Tensor
    actions: Tensor
    rewards: NDArray[np.float64]
    discounts: NDArray[np.float64]
    counted: NDArray[np.bool_]  # still in their first episodes


@torch.inference_mode()
def play_episodes(model: Model, stage: Stage, gamma: float, seed: int) -> Play:
    """One episode in each environment of the stage: by chance where scores are logits, as likely as they say; by the best otherwise."""
    random, beta = torch.Generator().manual_seed(seed), stage.setup.settings.discount_per_s
    rows = torch.zeros(stage.num_envs, stage.spec.observation_size)
    mask = torch.zeros(stage.num_envs, stage.spec.num_actions, dtype=torch.bool)
    stage.write(rows, mask)
    playing, cut = np.ones(stage.num_envs, np.bool_), np.zeros(stage.num_envs, np.bool_)
    moments: list[_Moment] = []
    while playing.any():
        if model.card["decision"] == "likely":
            actions = torch.multinomial(model.network.policy(rows, mask)[0].softmax(1), 1, generator=random).squeeze(1)
        else:
            actions = model.act(rows, mask)
        seen = rows.clone(), mask.clone()
        step = stage.step(actions, rows, mask)
        discount = np.exp(-beta * step.elapsed) if beta else np.full(stage.num_envs, gamma)
        moments.append(_Moment(*seen, actions, step.rewards, discount, playing.copy()))
        cut[step.cut[playing[step.cut]]] = True
        playing &= ~step.ended
    following = np.zeros(stage.num_envs)
    returns = []
    for moment in reversed(moments):
        following = np.where(moment.counted, moment.rewards + moment.discounts * following, 0.0)
        returns.append(following)
    kept = np.stack([moment.counted & ~cut for moment in moments])
    rows_kept = torch.from_numpy(kept)
    return Play(
        observations=torch.stack([moment.observations for moment in moments])[rows_kept],
        masks=torch.stack([moment.masks for moment in moments])[rows_kept],
        actions=torch.stack([moment.actions for moment in moments])[rows_kept],
        returns=np.stack(returns[::-1])[kept],
        episodes=stage.num_envs,
        cut=int(cut.sum()),
    )


class _Units(TorchFunctionMode):
    """Watches every ReLU of a forward pass, in the order in which they come."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[Tensor] = []  # [units] rows in which it was above zero
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


def _think(model: Model, play: Play) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Scores and values of all frames, and how its units took part."""
    outputs, watch = [], _Units()
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
    """How well values tell returns: by rank of value, ten groups of frames with what was expected and what came."""
    slope, shift, correlation = _fit(values, returns)
    order = np.array_split(np.argsort(values, kind="stable"), DECILES)
    groups = [{"expected": float(slope * values[g].mean() + shift), "came": float(returns[g].mean())} for g in order if len(g)]
    return {"correlation": correlation, "explained_variance": correlation**2 if correlation > 0 else 0.0, "calibration": groups}


def _fit(values: NDArray[np.float64], returns: NDArray[np.float64]) -> tuple[float, float, float]:
    """Least squares: returns ≈ slope × values + shift, and the correlation; zero where there is nothing to tell."""
    if len(values) < 2 or values.std() == 0 or returns.std() == 0:
        return 0.0, float(returns.mean()) if len(returns) else 0.0, 0.0
    correlation = float(np.corrcoef(values, returns)[0, 1])
    slope = correlation * float(returns.std() / values.std())
    return slope, float(returns.mean() - slope * values.mean()), correlation


def _advantage(log_probs: Tensor, values: NDArray[np.float64], play: Play) -> dict[str, Any]:
    """Whether actions it finds likely came off better than its value said, in deviations of the returns."""
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


def _actions(log_probs: Tensor, play: Play, spec: Spec) -> dict[str, Any]:
    chosen, legal = play.actions.numpy(), play.masks.sum(1).numpy()
    choice, waits = legal > 1, chosen == spec.num_actions - 1
    likely = log_probs.clamp(min=-50.0)
    entropy = -(likely.exp() * likely).sum(1).numpy()
    picks = chosen[~waits]
    slots = picks // spec.layout.hosts if spec.problem == "joint" else picks
    hosts = picks % spec.layout.hosts if spec.problem == "joint" else picks
    avoidable = choice & play.masks[:, -1].numpy()
    return {
        "waits": _share(waits[avoidable]),
        "entropy": float(entropy[choice].mean()) if choice.any() else 0.0,
        "entropy_share": float((entropy[choice] / np.log(legal[choice])).mean()) if choice.any() else 0.0,
        "slots": None if spec.problem == "host" else np.bincount(slots, minlength=spec.layout.window).tolist(),
        "hosts": None if spec.problem == "job" else np.bincount(hosts, minlength=spec.layout.hosts).tolist(),
    }


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _masks(play: Play) -> dict[str, Any]:
    legal = play.masks.sum(1).numpy()
    return {
        "legal_mean": float(legal.mean()) if len(legal) else 0.0,
        "legal_most": int(legal.max(initial=0)),
        "forced_share": _share(legal == 1),
        "wait_legal_share": _share(play.masks[:, -1].numpy()),
        "cut_episodes": play.cut,
    }


def _gradient(model: Model, play: Play) -> dict[str, Any]:
    """Gradients of a plain policy-gradient and value loss on (at most) one batch, by part of the network."""
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
    """The last figures of training, where the run's folder is at hand."""
    homes = (path.parent, path.parent / f"seed-{card['seed']}", path.parent.parent)
    rows = next((rows for home in homes if (rows := read_rows(home))), [])
    names = ("gradient/norm", "value/explained_variance", "policy/kl", "policy/clip_fraction", "policy/entropy")
    return {name: rows[-1][name] for name in names if rows and rows[-1].get(name) is not None} | {"iterations": len(rows)}
