"""Training, the same for every algorithm: iterate, look at VAL now and then, keep the best, and at the end tell how it does on REPORT.

VAL windows are fixed and choose the model; REPORT windows are played once, by the chosen model, after training. A run folder holds
`config.toml`, one folder a seed (`seed-0/`: metrics, checkpoints, best model), the best model over all seeds, and, last, `summary.json`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from queuewise.agents.checkpoint import Folder, check_card, make_card, read_file, read_state
from queuewise.agents.grounds import Grounds, make_grounds
from queuewise.agents.judging import judge_policy
from queuewise.agents.learner import Diverged, Learner, load_module, make_learner
from queuewise.agents.models import load_model
from queuewise.agents.recording import Recorder
from queuewise.agents.runs import CONFIG, check_contents
from queuewise.agents.scaling import read_scaling
from queuewise.agents.settings import TrainSettings
from queuewise.agents.spec import Spec
from queuewise.config import to_toml
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, Experiment, Result, judge, run_experiment
from queuewise.evaluation.identity import digest_cluster, digest_workload
from queuewise.evaluation.replay_files import to_json, write_cluster
from queuewise.evaluation.scores import Score, parse_score
from queuewise.policies import simulate
from queuewise.policies.model_file import SUFFIX
from queuewise.runs import LAST_FILE, replacing, start_run, write_text


class Watcher(Protocol):
    """Who is told how training goes."""

    def begin(self, seed: int, settings: TrainSettings, frames: int) -> None: ...

    def iteration(self, row: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass
class Progress:
    """Where the loop is; kept in every checkpoint."""

    iteration: int = 0
    best_iteration: int = 0
    best_score: float | None = None
    since_best: int = 0  # evaluations on VAL
    seconds: float = 0.0
    val: dict[str, float] = field(default_factory=dict)  # scores at the best iteration


@dataclass(frozen=True)
class Outcome:
    """What `train` hands back."""

    run: Path
    frames: int
    frames_per_s: float
    val: dict[str, float]
    result: Result  # on REPORT
    settings: TrainSettings

    def as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "algo": self.settings.algo,
            "frames": self.frames,
            "frames_per_s": self.frames_per_s,
            "val": self.val,
            "report": {s.policy: {"mean": s.mean, "ci95": list(s.ci95 or (None, None))} for s in self.result.standings},
        }


def train(
    settings: TrainSettings, seeds: Sequence[int], run: Path, watcher: Watcher, *, resume: bool = False, init_from: Path | None = None
) -> Outcome:
    """Train one policy for each seed, keep the best of all on VAL, and judge it on REPORT beside the baselines."""
    if not resume and (run / CONFIG).exists():
        raise InputError("holds a run already", where=str(run), hint="add --resume to go on with it, or give another --out")
    start_run(run)
    grounds = make_grounds(settings, watcher.note)
    contents = {"workload": digest_workload(grounds.workload), "cluster": digest_cluster(grounds.cluster)}
    if resume:
        check_contents(run, contents)
    score = parse_score(settings.score)
    examiner = Examiner(grounds, score)
    facts = {"command": "train", "seeds": list(seeds), "contents": contents, "settings": settings.model_dump(mode="json")}
    write_text(run / CONFIG, to_toml(facts))
    write_cluster(run, grounds.cluster)
    try:
        ends = [_train_seed(Seed(seed, run, settings, grounds, examiner), watcher, resume, init_from) for seed in seeds]
    except InputError:
        if not resume and not any(run.glob("seed-*/checkpoints/*")):  # nothing to go on with: the folder may be used again
            (run / CONFIG).unlink()
        raise
    best = _best_seed(ends, score, seeds)
    _publish(run, run / f"seed-{seeds[best]}")
    result = _report(run, settings, grounds, score, watcher)
    frames, seconds = sum(end.frames for end in ends), sum(end.seconds for end in ends)
    outcome = Outcome(run, frames, frames / max(seconds, 1e-9), ends[best].val, result, settings)
    write_text(run / LAST_FILE, to_json(outcome.as_json() | {"standings": result.as_json()}))
    return outcome


class Examiner:
    """VAL: the learner beside the baselines, which are replayed once."""

    def __init__(self, grounds: Grounds, score: Score) -> None:
        self._grounds, self._score = grounds, score
        self._experiment = grounds.experiment("val")
        self._baselines = baseline_cells(self._experiment, grounds.settings.baselines)

    def val(self, learner: Learner) -> dict[str, float]:
        """Mean scores by policy; the learner is called `agent`."""
        cells = judge_policy(learner.act, learner.scaling, self._grounds, self._experiment, "model:agent")
        return {s.policy.removeprefix("model:"): s.mean for s in judge([*cells, *self._baselines], self._score).standings}


def baseline_cells(experiment: Experiment, baselines: Sequence[str]) -> list[Cell]:
    return run_experiment(experiment, baselines, simulate)


@dataclass(frozen=True)
class Seed:
    """All that one seed's training needs."""

    seed: int
    run: Path
    settings: TrainSettings
    grounds: Grounds
    examiner: Examiner

    @property
    def home(self) -> Path:
        return self.run / f"seed-{self.seed}"


@dataclass(frozen=True)
class End:
    frames: int
    seconds: float
    best_score: float | None
    val: dict[str, float]


def _train_seed(one: Seed, watcher: Watcher, resume: bool, init_from: Path | None) -> End:
    settings, progress = one.settings, Progress()
    folder = Folder(one.home, settings.keep)
    learner = make_learner(one.grounds.setup, settings, one.seed)
    spec = learner.network.spec
    last = folder.last() if resume else None
    if last is not None:
        progress = _go_on(learner, last, settings, spec)
    elif init_from is not None:
        warm_start(learner, init_from, settings, spec)
    recorder = Recorder(one.home, settings.logs, settings.model_dump(mode="json"), after=progress.iteration)
    watcher.begin(one.seed, settings, learner.frames)
    loop = _Loop(one, learner, folder, recorder, progress, watcher)
    try:
        loop.run()
    finally:
        recorder.close()
        learner.close()
    return End(learner.frames, progress.seconds, progress.best_score, progress.val)


@dataclass
class _Loop:
    one: Seed
    learner: Learner
    folder: Folder
    recorder: Recorder
    progress: Progress
    watcher: Watcher

    def run(self) -> None:
        settings, higher = self.one.settings, parse_score(self.one.settings.score).higher_is_better
        try:
            while self.learner.frames < settings.frames and not self._stale():
                began = time.perf_counter()
                row = self._iterate()
                if self._due(settings.eval_every):
                    val = self.one.examiner.val(self.learner)
                    row |= {f"val/{policy}": score for policy, score in val.items()}
                    self._compare(val, higher)
                self.progress.seconds += time.perf_counter() - began
                self.recorder.write(row)
                self.watcher.iteration(row)
                if self._due(settings.checkpoint_every):
                    self._keep()
        except Diverged as error:
            kept = self.folder.last()
            self.watcher.note(f"seed {self.one.seed} stopped: {error.message}")
            self.watcher.note(f"the last good checkpoint is {kept}" if kept else "there was no checkpoint yet")
            if self.progress.best_score is None:
                raise

    def _due(self, every: int) -> bool:
        return self.progress.iteration % every == 0 or self.learner.frames >= self.one.settings.frames

    def _iterate(self) -> dict[str, Any]:
        began = time.perf_counter()
        before = self.learner.frames
        statistics = self.learner.iterate()
        self.progress.iteration += 1
        rate = (self.learner.frames - before) / (time.perf_counter() - began)
        return {"iteration": self.progress.iteration, "frames": self.learner.frames, "frames_per_s": rate, **statistics}

    def _compare(self, val: dict[str, float], higher: bool) -> None:
        """Keep the model if it is the best on VAL so far. A gain of less than `threshold` is kept but does not restart the patience."""
        score, best = val["agent"], self.progress.best_score
        sign = 1.0 if higher else -1.0
        gain = np.inf if best is None else sign * (score - best)
        if gain > 0:
            self.progress.best_score, self.progress.best_iteration, self.progress.val = score, self.progress.iteration, val
            self.folder.write_best(self.learner, self._card())
        needed = 0.0 if best is None else self.one.settings.stop.threshold * abs(best)
        self.progress.since_best = 0 if gain > needed else self.progress.since_best + 1

    def _stale(self) -> bool:
        patience = self.one.settings.stop.patience
        return patience is not None and self.progress.since_best >= patience

    def _keep(self) -> None:
        self.folder.write(self.learner.state(), self._card(), self.progress.iteration)

    def _card(self) -> dict[str, Any]:
        facts = {
            "frames": self.learner.frames,
            "progress": vars(self.progress),
            "score": self.one.settings.score,
            "decision": self.learner.decision,
        }
        return make_card(self.one.settings, self.learner.network.spec, self.one.seed, **facts)


def _go_on(learner: Learner, last: Path, settings: TrainSettings, spec: Spec) -> Progress:
    state, card = read_state(last)
    check_card(card, settings, spec, where=str(last), same_size=True)
    if card["algo"] != settings.algo:
        raise InputError(f"is of {card['algo']}, not of {settings.algo}", where=str(last), hint="give the same --algo")
    learner.restore(state)
    return Progress(**card["progress"])


def warm_start(learner: Learner, source: Path, settings: TrainSettings, spec: Spec) -> None:
    """Begin with the weights and the scaling of a model or checkpoint; everything else is new."""
    path = source / f"best{SUFFIX}" if source.is_dir() else source
    tensors, card = read_file(path)
    check_card(card, settings, spec, where=str(path), same_size=settings.net == "mlp")
    load_module(learner.network, tensors, "network")
    learner.rescale(read_scaling(tensors))


def _best_seed(ends: Sequence[End], score: Score, seeds: Sequence[int]) -> int:
    sign = 1.0 if score.higher_is_better else -1.0
    known = [number for number, end in enumerate(ends) if end.best_score is not None]
    return max(known, key=lambda number: sign * (ends[number].best_score or 0.0))


def _publish(run: Path, home: Path) -> None:
    """Copy the best seed's model to the top of the run folder."""
    for name in (f"best{SUFFIX}", "best.json"):
        with replacing(run / name) as temporary:
            shutil.copyfile(home / name, temporary)


def _report(run: Path, settings: TrainSettings, grounds: Grounds, score: Score, watcher: Watcher) -> Result:
    """The chosen model on REPORT, beside the baselines."""
    watcher.note(f"judging the best model on {settings.report_windows} windows never used before")
    experiment = grounds.experiment("report")
    model = load_model(run / f"best{SUFFIX}", Spec(settings.env, grounds.setup.layout))
    cells = judge_policy(model.act, model.scaling, grounds, experiment, f"model:{run}")
    return judge([*cells, *baseline_cells(experiment, settings.baselines)], score)
