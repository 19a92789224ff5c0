"""Set up an env from the user's arguments: settings, cluster, source of windows, layout.

Shared by single and vector env.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from inspect import signature
from threading import Lock
from typing import Any

import numpy as np

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.farm import Farm
from queuewise.cluster.spec import Cluster
from queuewise.config import validate
from queuewise.envs.batch import EnvBatch
from queuewise.envs.circumstances import Circumstances
from queuewise.envs.env_memory import Template, make_template
from queuewise.envs.episodes import Episode, lay_out_episode, num_units
from queuewise.envs.features import ObservationLayout
from queuewise.envs.presets import preset as preset_settings
from queuewise.envs.rewards import AGAINST_BASELINE, REWARD_EXAMPLE
from queuewise.envs.task_settings import TaskSettings
from queuewise.envs.windows import WindowJobs, WindowSource, known_runtimes, make_source
from queuewise.errors import InputError, unknown_name
from queuewise.evaluation.protocol import DEFAULT_SPLIT
from queuewise.policies.backfill import SLURM
from queuewise.policies.ordering import order_rule
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.user_code import is_reference
from queuewise.sim.core.state import NO_LIMIT
from queuewise.workload.jobs import Workload

DEFAULT_WORKLOAD = "bench"
DEFAULT_CLUSTER = "16x8:V100-16"
KEPT = 512  # windows whose templates are cached
AHEAD = 4  # episodes for which windows are laid out in the background
HEAD_BACKFILLS = ("easy", "easy-strict", "conservative", "greedy")


@dataclass(eq=False)
class EnvSetup:
    """What envs with the same arguments share."""

    cluster: Cluster
    settings: TaskSettings
    source: WindowSource
    layout: ObservationLayout
    conditions: Conditions = PERFECT
    farm: Farm | None = None  # another cluster for every window

    def __post_init__(self) -> None:
        self._kept: OrderedDict[int, Template] = OrderedDict()
        self._lock = Lock()  # a window is laid out once, whichever thread asks for it first
        self._foresight: ThreadPoolExecutor | None = None
        self._foreseen = 0  # the episode up to which windows are laid out ahead

    def draw(self, rng: np.random.Generator, episode: int) -> Template:
        """The window of an env's next episode, of which it has begun `episode` before."""
        return self.window(self.source.draw_for(episode, rng))

    def foresee(self, episode: int) -> None:
        """Lay out what the pool gains in the next episodes, while the caller does something else.

        Which windows an env plays depends on its seed alone; that they are there already only saves time.
        """
        if not self.source.slides or episode + AHEAD <= self._foreseen:
            return
        if self._foresight is None:
            self._foresight = ThreadPoolExecutor(1, thread_name_prefix="windows")
        for later in range(self._foreseen + 1, episode + AHEAD + 1):
            self._foresight.submit(self.window, self.source.newest(later))
        self._foreseen = episode + AHEAD

    def close(self) -> None:
        if self._foresight is not None:
            self._foresight.shutdown(cancel_futures=True)
            self._foresight = None

    def window(self, number: int) -> Template:
        """The template of window `number` of the source. The most recently used templates are cached."""
        if not 0 <= number < self.source.size:
            raise InputError(f"there is no window {number}", hint=f"give a window from 0 to {self.source.size - 1}")
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
            cluster = self.cluster if self.farm is None else self.farm.draw(number + 1)  # none is the farm with seed 0
            self._kept[number] = template = make_template(self._lay_out(self.source.window(number, cluster), cluster))
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return template

    def given(self, workload: Workload) -> Template:
        """The template of a window that the caller gives, on an empty cluster."""
        window = WindowJobs(workload, known_runtimes(workload, self.cluster, self.settings.estimates))
        return make_template(self._lay_out(window, self.cluster))

    def on_farms(self, farm: Farm) -> EnvSetup:
        """The same with another farm for every window."""
        if farm.hosts != self.cluster.num_nodes:
            raise InputError(
                f"farms of {farm.hosts} hosts, but {self.cluster.name} has {self.cluster.num_nodes}", hint="use as many hosts in both"
            )
        return replace(self, farm=farm)

    def _lay_out(self, window: WindowJobs, cluster: Cluster) -> Episode:
        circumstances = Circumstances(self.conditions, start=window.start, guessed=window.known.guessed)
        return lay_out_episode(window.workload, cluster, self.settings, self.layout, window.known.values, circumstances)

    def batch(self, size: int, threads: int | None = None, *, turns: bool = False) -> EnvBatch:
        return EnvBatch(size, self.cluster, self.settings, self.layout, threads, turns=turns)


def _check_queue(settings: TaskSettings) -> None:
    """Refuse orders, backfills and bounds that the task cannot have."""
    filling, rule = settings.filling, settings.backfill
    if order_rule(filling.order).fixed is None:
        raise InputError(
            f"window_order {settings.window_order!r} changes with time",
            hint="choose an order that does not change: fcfs, sjf, priority, …",
        )
    if filling.backfill == SLURM:
        raise InputError("environments have no loops of their own: backfill='slurm' is for replays", hint="use 'conservative' or 'easy'")
    if filling.depth != NO_LIMIT:
        raise InputError(f"backfill={rule!r}: environments have no limit on the depth of backfill", hint="leave out / and the number")
    if filling.backfill_order and (is_reference(filling.backfill_order) or order_rule(filling.backfill_order).fair):
        raise InputError(
            f"backfill={rule!r}: an order by usage, or of your own, is for replays", hint="choose a built-in order of size and time"
        )
    if settings.problem == "host" and rule not in (None, "none", "greedy"):
        raise InputError(f"the host problem does not support backfill={rule!r}", hint="use 'none' (the head blocks) or 'greedy'")
    if settings.dispatch != "mask" and settings.problem != "job":
        unfit = f"the {settings.problem} problem does not support dispatch={settings.dispatch!r}"
        raise InputError(unfit, hint="use dispatch='mask', or the job problem")
    if settings.dispatch == "head" and filling.backfill not in HEAD_BACKFILLS:
        raise InputError(
            f"dispatch='head' does not support backfill={rule!r}: something has to be filled in behind the head",
            hint=f"use one of {', '.join(HEAD_BACKFILLS)}",
        )
    settings.max_wait_s  # noqa: B018 (checks it)


def _check_baseline(settings: TaskSettings) -> None:
    """Refuse rewards that compare with a baseline, if there is none or its metric has no ratio."""
    compares = [f"term {term.name!r}" for term in settings.reward if term.name in AGAINST_BASELINE]
    compares += ["divisor 'baseline'" for term in settings.reward if "baseline" in term.per]
    if compares and settings.baseline is None:
        raise InputError(
            f"the reward {compares[0]} needs a baseline", hint="for example baseline={'policy': 'fcfs+easy', 'metric': 'wait'}"
        )
    if settings.baseline is not None and settings.baseline.metric == "utilisation" and compares not in ([], ["term 'relative'"]):
        raise InputError(f"the reward {compares[-1]} cannot go by utilisation", hint="choose another metric, or the term 'relative'")


def check_reset_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options of `reset` that would be ignored."""
    for name in options:
        if name not in known:
            raise unknown_name("option of reset", str(name), known)


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuse arguments of an environment that nobody reads, and rewards of other types."""
    known = [*TaskSettings.model_fields, *signature(build_setup).parameters]
    for name in settings:
        if name not in known:
            raise unknown_name("setting of an environment", name, [one for one in known if one != "settings"])
    reward = settings.get("reward", "wait")
    if not isinstance(reward, str | tuple | list):
        raise InputError(
            f"reward is {type(reward).__name__} {reward!r}", hint=f"{REWARD_EXAMPLE}, a tuple of Terms, or a function of terms"
        )


def build_setup(
    problem: str | None = None,
    *,
    preset: str | None = None,
    workload: str | Workload | Sequence[Workload] = DEFAULT_WORKLOAD,
    cluster: str | Cluster = DEFAULT_CLUSTER,
    episode_jobs: int | None = 256,
    block: str | None = "train",
    split: tuple[float, float, float] = DEFAULT_SPLIT,
    pool: int | None = None,
    model_args: dict[str, Any] | None = None,
    starts: Sequence[Snapshot | None] | None = None,
    conditions: Conditions | Mapping[str, Any] = PERFECT,
    **settings: Any,
) -> EnvSetup:
    """Check the arguments and set up the env. `settings` override those of the preset, `problem` overrides both.

    `conditions` (outages, reservations, quotas, …) hold in every window, at times of the window's own clock. `starts` are
    what the windows of a list begin with, each with the jobs that it needs (`Snapshot.select`).
    """
    if "jobs" in settings:
        raise InputError(
            f"jobs={settings['jobs']!r}: the number of jobs in an episode is called episode_jobs",
            hint=f"write episode_jobs={settings['jobs']}",
        )
    if episode_jobs is not None and (isinstance(episode_jobs, bool) or not isinstance(episode_jobs, int | np.integer) or episode_jobs < 1):
        raise InputError(f"episode_jobs={episode_jobs!r} is no number of jobs", hint="write for example episode_jobs=256, or None for all")
    _check_names(settings)
    chosen = preset_settings(preset) if preset else {}
    chosen |= settings
    if problem is not None:
        chosen["problem"] = problem
    checked = validate(TaskSettings, chosen, source="environment settings")
    _check_queue(checked)
    if (checked.view == "lsf") != (checked.problem == "host") and checked.view != "tokens":
        raise InputError(
            f"the {checked.problem} problem has no view {checked.view!r}",
            hint="view 'lsf' is for the host problem, the other published views are for the job problem",
        )
    if checked.stops and (checked.problem, checked.dispatch, checked.view) != ("job", "mask", "tokens"):
        raise InputError(
            "stops needs the job problem with dispatch='mask' and view='tokens'", hint="change these settings, or give stops=0"
        )
    if checked.one_event and (
        (checked.problem, checked.dispatch) != ("job", "mask") or checked.skip_forced or checked.max_wait or checked.stops
    ):
        raise InputError(
            "one_event needs the job problem with dispatch='mask', without skip_forced, max_wait and stops",
            hint="change these settings, or give one_event=False",
        )
    if checked.moves and not checked.stops:
        raise InputError("moves=True needs slots for running jobs", hint="for example, stops=8 shows eight of them")
    _check_baseline(checked)
    machine = load_cluster(cluster) if isinstance(cluster, str) else cluster
    world = conditions if isinstance(conditions, Conditions) else validate(Conditions, conditions, source="conditions")
    sizes: dict[str, Any] = {
        "episode_jobs": episode_jobs,
        "block": block,
        "split": split,
        "pool": pool,
        "model_args": model_args,
        "starts": starts,
    }
    source = make_source(workload, machine, checked, world, **sizes)
    hosts = checked.host_slots or machine.num_nodes
    layout = ObservationLayout(checked.window, hosts, num_units(machine), checked.scores, checked.view, checked.stops, checked.moves)
    if layout.hosts < machine.num_nodes:
        raise InputError(
            f"{layout.hosts} host slots are too few for {machine.num_nodes} nodes",
            hint=f"give host_slots=None, or at least {machine.num_nodes}",
        )
    return EnvSetup(machine, checked, source, layout, world)
