"""The training loop of every algorithm: iterate, evaluate on VAL, keep the best model, and evaluate it on REPORT.

VAL windows are fixed and select the model; REPORT windows are played once, by the selected model, after training. A run
folder holds `config.toml`, one folder per seed (`seed-0/`: metrics, checkpoints, best model), the best model over all
seeds, and, written last, `summary.json`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from queuewise.agents.checkpoint import CheckpointFolder, check_card, load_model, load_weights, make_card, read_file, read_state
from queuewise.agents.learner import IMITATION_S, DivergedError, Learner, find_algorithm, make_learner
from queuewise.agents.observation_scaling import read_scaling
from queuewise.agents.recording import CONFIG, Recorder, check_contents
from queuewise.agents.resolved import play_in_words, resolve
from queuewise.agents.scenario import BEST, Scenario, load_scenario
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import TrainSettings
from queuewise.agents.validation import Validator, acting, evaluate_policy
from queuewise.config import parse_toml, to_toml
from queuewise.errors import InputError
from queuewise.evaluation.identity import digest_cluster, digest_workload
from queuewise.evaluation.judging import Result, judge
from queuewise.evaluation.replay_files import CLUSTER_FILE, to_json, write_cluster
from queuewise.evaluation.scores import Score, parse_score
from queuewise.evaluation.seen_days import CARD_KEY, read_training
from queuewise.policies.model_file import SUFFIX
from queuewise.policies.networks import problems_of
from queuewise.runs import LAST_FILE, locked, replacing, start_run, write_text
from queuewise.workload import Workload
from queuewise.workload.models import draw_jobs
from queuewise.workload.transform import distinct_ids

INIT_FROM = "init_from"  # key of config.toml


class ProgressListener(Protocol):
    """Receives the progress of training; `Display` shows it on stderr."""

    def begin(self, seed: int, settings: TrainSettings, frames: int) -> None: ...

    def iteration(self, row: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass
class TrainProgress:
    """State of the training loop; stored in every checkpoint."""

    iteration: int = 0
    best_iteration: int = 0
    best_score: float | None = None
    since_best: int = 0  # evaluations on VAL
    seconds: float = 0.0  # including the following two
    imitation_s: float = 0.0
    val_s: float = 0.0
    val: dict[str, float] = field(default_factory=dict)  # scores at the best iteration

    def steady_rate(self, frames: int) -> float:
        """Frames per second of playing and learning alone."""
        return frames / max(self.seconds - self.imitation_s - self.val_s, 1e-9)


@dataclass(frozen=True)
class TrainOutcome:
    """What `train` returns."""

    run: Path
    frames: int
    time: TrainProgress  # of all seeds together
    val: dict[str, float]
    result: Result  # on REPORT
    settings: TrainSettings
    play: str  # how the policies of the result back-fill and place jobs, where their names do not say

    def as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "algo": self.settings.algo,
            "frames": self.frames,
            "frames_per_s": self.frames / max(self.time.seconds, 1e-9),
            "steady_frames_per_s": self.time.steady_rate(self.frames),
            "imitation_s": self.time.imitation_s,
            "val_s": self.time.val_s,
            "val": self.val,
            "report": {s.policy: {"mean": s.mean, "ci95": list(s.ci95 or (None, None))} for s in self.result.standings},
        }


def train(
    settings: TrainSettings,
    seeds: Sequence[int],
    run: Path,
    listener: ProgressListener,
    *,
    resume: bool = False,
    init_from: Path | None = None,
) -> TrainOutcome:
    """Train one policy per seed, keep the best of them on VAL, and evaluate it on REPORT beside the baselines."""
    find_algorithm(settings.algo)  # mistakes are reported before the work
    problems_of(settings.net)
    parse_score(settings.objective)
    if not resume and (run / CONFIG).exists():
        raise InputError("already holds a run", where=str(run), hint="add --resume to continue it, or choose another --out")
    start_run(run)
    with locked(run):
        try:
            return _train(settings, seeds, run, listener, resume, init_from)
        except InputError:
            if not resume and not any(run.glob("seed-*/checkpoints/*")):  # nothing to resume: the folder can be used again
                for file in (CONFIG, CLUSTER_FILE):
                    (run / file).unlink(missing_ok=True)
            raise


def _train(
    settings: TrainSettings, seeds: Sequence[int], run: Path, listener: ProgressListener, resume: bool, init_from: Path | None
) -> TrainOutcome:
    facts: dict[str, Any] = {"command": "train", "seeds": list(seeds), "settings": settings.model_dump(mode="json")}
    if resume and init_from is None and (noted := parse_toml(run / CONFIG).get(INIT_FROM)):
        init_from = Path(str(noted))  # it was interrupted before it had a checkpoint
    began_with = {} if init_from is None else {INIT_FROM: str(init_from)}
    facts |= began_with
    if not resume:
        write_text(run / CONFIG, to_toml(facts))  # first: whatever interrupts the run, it can be resumed
    listener.note(f"reading {settings.workload} …")
    scenario = load_scenario(settings, listener.note)
    contents = {"workload": digest_workload(_jobs_alone(scenario)), "cluster": digest_cluster(scenario.cluster)}
    if not scenario.from_model:
        contents["split"] = ",".join(f"{share:g}" for share in scenario.split)
    if resume:
        check_contents(run, contents)
    begun = resume and any(run.glob("seed-*/checkpoints/*"))
    trained_on = _known_training(run) if begun else _training(scenario, init_from)
    score = parse_score(settings.objective)
    listener.note("replaying the policies to compare with on VAL …")
    validator = Validator(scenario, score)
    if BEST in settings.baselines:
        listener.note(f"policies to compare with: {', '.join(validator.baselines)} ({BEST}: chosen of all orders and backfills on VAL)")
    write_text(run / CONFIG, to_toml(facts | {"contents": contents, "resolved": resolve(scenario), **trained_on}))
    write_cluster(run, scenario.cluster)
    ends = [
        _train_seed(SeedRun(seed, run, settings, scenario, validator, trained_on | began_with), listener, resume, init_from)
        for seed in seeds
    ]
    best = _best_seed(ends, score, seeds)
    _publish(run, run / f"seed-{seeds[best]}")
    result = _report(run, settings, scenario, score, validator, listener)
    spent = {name: sum(getattr(end.progress, name) for end in ends) for name in ("seconds", "imitation_s", "val_s")}
    frames = sum(end.frames for end in ends)
    outcome = TrainOutcome(run, frames, TrainProgress(**spent), ends[best].progress.val, result, settings, play_in_words(scenario))
    write_text(run / LAST_FILE, to_json(outcome.as_json() | {"standings": result.as_json()}))
    return outcome


def _jobs_alone(scenario: Scenario) -> Workload:
    """The log, or a sample of the model without users, which runs of earlier versions know nothing of."""
    settings = scenario.settings
    return distinct_ids(draw_jobs(settings.workload, settings.episode_jobs)) if scenario.from_model else scenario.workload


@dataclass(frozen=True)
class SeedRun:
    """Everything that the training of one seed needs."""

    seed: int
    run: Path
    settings: TrainSettings
    scenario: Scenario
    validator: Validator
    trained_on: dict[str, Any]  # goes into the card

    @property
    def home(self) -> Path:
        return self.run / f"seed-{self.seed}"


@dataclass(frozen=True)
class SeedResult:
    """How the training of one seed ended."""

    frames: int
    progress: TrainProgress


def _train_seed(one: SeedRun, listener: ProgressListener, resume: bool, init_from: Path | None) -> SeedResult:
    settings, progress = one.settings, TrainProgress()
    folder = CheckpointFolder(one.home, settings.keep)
    listener.note(f"seed {one.seed}: making environments and network …")
    learner = make_learner(one.scenario.setup, settings, one.seed)
    shape = learner.network.shape
    last = folder.last() if resume else None
    if last is not None:
        progress = _resume(learner, last, settings, shape)
    elif init_from is not None:
        warm_start(learner, init_from, settings, shape)
    recorder = Recorder(one.home, settings.logs, settings.model_dump(mode="json"), after=progress.iteration)
    listener.begin(one.seed, settings, learner.frames)
    if settings.algo == "ppo" and settings.ppo.imitate and not progress.iteration:
        listener.note(f"seed {one.seed}: imitating {settings.ppo.imitate} for {settings.ppo.imitate_frames:,} frames …")
    loop = _TrainLoop(one, learner, folder, recorder, progress, listener)
    try:
        loop.run()
    finally:
        learner.close()
        recorder.close()  # may raise: there may be no space for what is not written yet
    return SeedResult(learner.frames, progress)


@dataclass
class _TrainLoop:
    """The loop of one seed."""

    one: SeedRun
    learner: Learner
    folder: CheckpointFolder
    recorder: Recorder
    progress: TrainProgress
    listener: ProgressListener

    def run(self) -> None:
        settings, higher = self.one.settings, parse_score(self.one.settings.objective).higher_is_better
        try:
            while self.learner.frames < settings.frames and not self._stale():
                began = time.perf_counter()
                row = self._iterate()
                if self._due(settings.eval_every):
                    validating = time.perf_counter()
                    val = self.one.validator.val(self.learner)
                    self.progress.val_s += time.perf_counter() - validating
                    row |= val.as_row()
                    self._compare(val.means, higher)
                self.progress.seconds += time.perf_counter() - began
                self.recorder.write(row)
                self.listener.iteration(row)
                if self._due(settings.checkpoint_every):
                    self._write_checkpoint()
        except DivergedError as error:
            kept = self.folder.last()
            self.listener.note(f"seed {self.one.seed} stopped: {error.message}")
            self.listener.note(f"the last good checkpoint is {kept}" if kept else "there is no checkpoint yet")
            if self.progress.best_score is None:
                raise

    def _due(self, every: int) -> bool:
        return self.progress.iteration % every == 0 or self.learner.frames >= self.one.settings.frames

    def _iterate(self) -> dict[str, Any]:
        began = time.perf_counter()
        before = self.learner.frames
        statistics = self.learner.iterate()
        self.progress.iteration += 1
        imitation_s = statistics.get(IMITATION_S, 0.0)
        self.progress.imitation_s += imitation_s
        rate = (self.learner.frames - before) / (time.perf_counter() - began - imitation_s)
        return {"iteration": self.progress.iteration, "frames": self.learner.frames, "frames_per_s": rate, **statistics}

    def _compare(self, val: dict[str, float], higher: bool) -> None:
        """Store the model if it is the best on VAL so far.

        An improvement below `threshold` does not reset the patience.
        """
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

    def _write_checkpoint(self) -> None:
        self.folder.write(self.learner.state(), self._card(), self.progress.iteration)

    def _card(self) -> dict[str, Any]:
        facts = {
            "frames": self.learner.frames,
            "progress": vars(self.progress),
            "score": self.one.settings.objective,
            "decision": self.learner.decision,
            **self.one.trained_on,
        }
        return make_card(self.one.settings, self.learner.network.shape, self.one.seed, **facts)


def _training(scenario: Scenario, init_from: Path | None) -> dict[str, Any]:
    """The days of logs that models have seen after this run, for cards and `config.toml`; nothing, if it is not known.

    Weights that a run starts from have seen days as well.
    """
    before = read_training(_weights(init_from)) if init_from is not None else ()
    return {} if before is None else {CARD_KEY: [one.model_dump(mode="json") for one in (*scenario.trained_on, *before)]}


def _known_training(run: Path) -> dict[str, Any]:
    """The same, for a run that continues."""
    return {key: value for key, value in parse_toml(run / CONFIG).items() if key == CARD_KEY}


def _weights(source: Path) -> Path:
    """The file of a run's best model, or the given file."""
    return source / f"best{SUFFIX}" if source.is_dir() else source


def _resume(learner: Learner, last: Path, settings: TrainSettings, shape: TaskShape) -> TrainProgress:
    state, card = read_state(last)
    check_card(card, settings, shape, where=str(last), same_size=True)
    if card["algo"] != settings.algo:
        raise InputError(f"was written by {card['algo']}, not {settings.algo}", where=str(last), hint="use the same --algo")
    learner.restore(state)
    return TrainProgress(**card["progress"])


def warm_start(learner: Learner, source: Path, settings: TrainSettings, shape: TaskShape) -> None:
    """Start with the weights and the scaling of a model or checkpoint; everything else is new."""
    path = _weights(source)
    tensors, card = read_file(path)
    check_card(card, settings, shape, where=str(path), same_size=settings.net == "mlp")
    load_weights(learner.network, tensors, path)
    learner.rescale(read_scaling(tensors))


def _best_seed(ends: Sequence[SeedResult], score: Score, seeds: Sequence[int]) -> int:
    sign = 1.0 if score.higher_is_better else -1.0
    known = [number for number, end in enumerate(ends) if end.progress.best_score is not None]
    return max(known, key=lambda number: sign * (ends[number].progress.best_score or 0.0))


def _publish(run: Path, home: Path) -> None:
    """Copy the best seed's model to the top of the run folder."""
    for name in (f"best{SUFFIX}", "best.json"):
        with replacing(run / name) as temporary:
            shutil.copyfile(home / name, temporary)


def _report(
    run: Path, settings: TrainSettings, scenario: Scenario, score: Score, validator: Validator, listener: ProgressListener
) -> Result:
    """Evaluate the selected model on REPORT, beside the baselines."""
    listener.note(f"evaluating the best model on {settings.report_windows} windows never used before")
    experiment = scenario.experiment("report")
    model = load_model(run / f"best{SUFFIX}", TaskShape(settings.env, scenario.setup.layout))
    cells = evaluate_policy(acting(model, settings.eval_actions), model.scaling, scenario, experiment, f"model:{run}")
    return judge([*cells, *validator.baseline_cells(experiment, validator.baselines)], score)
