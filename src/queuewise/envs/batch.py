"""A batch of E envs, stepped by one compiled call. `single` and `vector` are thin layers on top of it.

Each env has its own block of memory, see `env_memory`. Resetting an env copies a template into its block.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.envs import columns
from queuewise.envs.actions import draw_for_all
from queuewise.envs.columns import EpisodeState, Frame
from queuewise.envs.env_memory import (
    BLOCK_LISTS,
    EPISODE_STATE,
    MACHINE,
    SHARED,
    SHARED_LISTS,
    SPARE,
    STATE,
    Template,
    round_to_cache_line,
    zeroed_memory,
)
from queuewise.envs.episodes import Episode, num_actions
from queuewise.envs.features import NUM_RUNNING, ObservationLayout
from queuewise.envs.output_rows import OutputRows
from queuewise.envs.playing import play, play_in_order
from queuewise.envs.published import publish
from queuewise.envs.step_entry import begin_or_step, begin_or_step_plain
from queuewise.envs.step_threads import REFUSED, STEP_SIGNATURE, StepThreads
from queuewise.envs.task_settings import TaskSettings
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure_from
from queuewise.evaluation.metrics import all_metrics
from queuewise.policies.learned import TrainedNetwork
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.engine import schedule_of
from queuewise.sim.core.schedule import DONE, KILLED, NEVER, RUNNING, Schedule
from queuewise.sim.core.state import Machine, State
from queuewise.sim.core.tables import F32, F64, I32, I64, addresses_of
from queuewise.workload.estimates import default_estimates

Bools = NDArray[np.bool_]
TURNED = columns.ActionSpace.slots["turned"]


class EnvBatch:
    """A batch of E envs.

    `begin` and `step` write the arrays below. The caller may pass its own buffer instead of `observations`. With `turns`,
    steps write to two buffers in turn, so that the observations before a step and after it are there together;
    `observations` is the one written last.
    """

    def __init__(
        self,
        size: int,
        cluster: Cluster,
        settings: TaskSettings,
        layout: ObservationLayout,
        threads: int | None = None,
        *,
        turns: bool = False,
    ) -> None:
        self.size, self.cluster, self.settings, self.layout = size, cluster, settings, layout
        self.joint = settings.problem == "joint"
        self.num_actions = num_actions(settings, layout)
        width = self.num_actions + (layout.window * layout.hosts if self.joint else 0)
        self.observations: F32 = self._zeroed_rows()
        self.mask: Bools = np.zeros((size, width), np.bool_)
        self.finals: F32 = np.zeros((size, layout.size), np.float32)  # last observations of envs that went on to their next episode
        self.rewards: F64 = np.zeros(size)
        self.outcome: I64 = np.zeros(size, np.int64)
        self.terminated: Bools = np.zeros(size, np.bool_)
        self.truncated: Bools = np.zeros(size, np.bool_)
        self.elapsed: F64 = np.zeros(size)
        self.tallies: F64 = np.zeros((len(columns.TALLY), size))  # of episodes that ended in the last step
        self._bytes = self.mask.view(np.int8)
        self._actions: I64 = np.zeros((size, 2), np.int64)
        self._memory = [np.zeros(0, np.uint8) for _ in range(size)]
        self._templates: list[Template | None] = [None] * size
        self._following: list[Template | None] = [None] * size  # the prepared next episodes
        self._all_envs = np.arange(size)
        self._output: OutputRows | None = None  # where observations were last written to
        self._rows = [OutputRows(self.observations, self._bytes, self.finals)]  # of the batch's own buffers, the one written last first
        if turns:
            other = self._zeroed_rows()
            pair = (self.observations, other), (other, self.observations)
            self._rows = [OutputRows(own, self._bytes, self.finals, before) for own, before in pair]
        self._frame = self._make_frame()
        self._call: Any = self._frame if JIT_DISABLED else addresses_of(self._frame)
        self._publish: Any = None if layout.view == "tokens" else publish
        self._threads = 1 if JIT_DISABLED else max(1, min(threads or os.cpu_count() or 1, size))
        self._step_threads: StepThreads | None = None
        self._entry: Any = begin_or_step_plain
        drawn = self._frame.drawn.reshape(size, 2)
        self._random, self._chosen = (drawn, self._actions) if self.joint else (drawn[:, 0], self._actions[:, 0])
        # Random actions: whether the caller asked for some since the last step, whether those of the present state are
        # drawn, whether steps end with drawing, and whether the generators are seeded.
        self._asked, self._drawn, self._draws, self._seeded = False, False, False, False

    def _zeroed_rows(self) -> F32:
        return zeroed_memory(self.size * self.layout.size * 4).view(np.float32).reshape(self.size, self.layout.size)

    def _make_frame(self) -> Frame:
        lists: Any = [None] * (self.size * columns.LISTS) if JIT_DISABLED else np.zeros(self.size * columns.LISTS, np.int64)
        space = columns.ActionSpace(
            actions=self.num_actions, hosts=self.layout.hosts, mask_width=self.mask.shape[1],
            pairs=int(self.joint), lenient=int(self.settings.illegal == "wait"),
        )  # fmt: skip
        return Frame(
            lists=lists,
            home=np.zeros(self.size, np.int64),
            running_at=np.array([self.layout.size - self.layout.stops * NUM_RUNNING]),
            length=np.array([self.layout.size]),
            space=space,
            mask=self._bytes.reshape(-1),
            drawn=np.zeros(2 * self.size, np.int64),
            generator=np.zeros(self.size, np.int64),
            actions=self._actions.reshape(-1),
            rewards=self.rewards,
            outcome=self.outcome,
            terminated=self.terminated.view(np.int8),
            truncated=self.truncated.view(np.int8),
            elapsed=self.elapsed,
            tally=self.tallies.reshape(-1),
            next=np.zeros(self.size * columns.NEXT_SIZE, np.int64),
        )

    def begin(self, envs: Iterable[int], templates: Iterable[Template], out: F32 | None = None) -> None:
        """Reset these envs to the beginning of these episodes. Observations are written to `out` if it is given."""
        chosen = []
        for e, template in zip(envs, templates, strict=True):
            self._load(int(e), template)
            chosen.append(e)
            self._following[e] = None
        for figures in (self.rewards, self.outcome, self.terminated, self.truncated, self.elapsed):
            figures[chosen] = 0
        self._frame.next.reshape(self.size, -1)[chosen] = 0
        self._set_output(self._rows[0] if out is None else self._rows_of(out))
        self._let_steps_draw(self._drawn)
        self._begin_or_step(np.array(chosen, np.int64), True, True)

    def prepare(self, e: int, template: Template) -> None:
        """Let env e begin this episode in the same step that ends its present one.

        Afterwards `went_on` reports whether it did. Of the episode that ended, only `tally` and `finals` remain. With a
        published view, or if the template's block is larger than the env's, the caller must call `begin` instead.
        """
        if not JIT_DISABLED and self._publish is None and len(template.block.bytes) <= len(self._memory[e]):
            self._following[e] = template
            self._choose_entry(template)
            self._frame.next[e * columns.NEXT_SIZE : (e + 1) * columns.NEXT_SIZE] = template.following

    def went_on(self, e: int) -> bool:
        """Whether env e, whose episode ended in the last step, has begun the prepared episode."""
        template = self._following[e]
        if template is None:
            return False
        self._templates[e], self._following[e] = template, None
        return True

    def _load(self, e: int, template: Template) -> None:
        block, frame = template.block, self._frame
        self._choose_entry(template)
        if len(self._memory[e]) < len(block.bytes):
            if len(self._memory[e]) == 0:
                self._allocate_blocks(round_to_cache_line(len(block.bytes) * 5 // 4))  # larger windows may follow
            else:
                self._memory[e] = zeroed_memory(len(block.bytes))
                frame.home[e] = self._memory[e].ctypes.data
        memory, home = self._memory[e], frame.home[e]
        block.load(memory, home)
        first = e * columns.LISTS
        if JIT_DISABLED:
            machine, spare, state, episode_state = (block.view(number, memory) for number in (MACHINE, SPARE, STATE, EPISODE_STATE))
            tables = [template.world, machine, spare, state, template.task, episode_state]
            frame.lists[first : first + len(tables)] = tables
        else:
            frame.lists[first + BLOCK_LISTS] = home + block.lists
            frame.lists[first + SHARED_LISTS] = template.following[SHARED]
        self._templates[e] = template

    def _choose_entry(self, template: Template) -> None:
        """Use the entry for all envs from now on, unless the one for plain envs can step this template as well."""
        if self._entry is begin_or_step_plain and not template.plain:
            self.close()  # its threads know the old entry
            self._entry = begin_or_step

    def _allocate_blocks(self, size: int) -> None:
        """Allocate a block of `size` bytes for every env."""
        memory = zeroed_memory(self.size * size)
        self._memory = [memory[e * size : (e + 1) * size] for e in range(self.size)]
        self._frame.home[:] = memory.ctypes.data + size * self._all_envs

    def step(self, actions: NDArray[Any], out: F32 | None = None) -> int:
        """Step all envs and return how many episodes ended.

        `actions` is [E], or [E, 2] in the joint problem. Observations are written to `out` if it is given.
        """
        actions = np.asarray(actions)
        if actions.shape != self._chosen.shape or actions.dtype.kind not in "iu":
            raise InputError(
                f"actions are {actions.dtype} {actions.shape}", hint=f"give integers of shape {self._chosen.shape}: one row per env"
            )
        self._chosen[...] = actions
        if self._draws != self._asked:
            self._let_steps_draw(self._asked)
        fresh = self._set_output(self._rows[-1] if out is None else self._rows_of(out))
        if self._step_threads is None:
            if not JIT_DISABLED and not self._entry.overloads:
                self._entry.compile(STEP_SIGNATURE.args)
            self._step_threads = StepThreads(self._threads, self._call, self._all_envs, self._entry, self._publish)
        ended = self._step_threads.step(fresh)
        if ended <= REFUSED:
            self._output = None  # nothing was written to the buffer
            raise self._refusal(REFUSED - ended)
        if out is None:
            self._rows.reverse()
            self.observations = self._rows[0].observations
        self._drawn, self._asked = self._asked, False
        return ended

    def play(self, network: TrainedNetwork, most: int) -> int:
        """Let a network play the only env until its episode ends, for at most `most` steps. Returns how many it took.

        If the network orders the queue (`Circumstances.ordering`), a step is an instant.
        """
        if self.size != 1:
            raise InputError(f"a network plays one env, not {self.size}", hint="make a batch of one env")
        orders = self.episode(0).circumstances.ordering is not None
        if orders:
            return play_in_order(network, self._call, self._publish, most)
        return play(network, self._call, self._entry, self._publish, most)

    def _let_steps_draw(self, draws: bool) -> None:
        self._draws = draws
        self._frame.space.draws = draws

    def _begin_or_step(self, envs: I64, begins: bool, fresh: bool) -> int:
        ended: int = self._entry(self._call, envs, begins, fresh, self.size)
        if self._publish is not None:
            self._publish(self._call, envs)
        return ended

    def _rows_of(self, buffer: F32) -> OutputRows:
        """The rows of a buffer that the caller gives."""
        if self._output is not None and self._output.observations is buffer:
            return self._output
        return OutputRows(buffer, self._bytes, self.finals)

    def _set_output(self, rows: OutputRows) -> bool:
        """Write observations to these rows from now on. Returns whether they must be written in full."""
        last = self._output
        if rows is last:
            if self._frame.space[TURNED]:
                self._frame.space[TURNED] = 0
            return False
        self._frame.lists[columns.LISTS - 1 :: columns.LISTS] = rows.lists
        turned = last is not None and rows.before is last.observations
        self._frame.space[TURNED] = turned
        self._output = rows
        return not turned

    def _refusal(self, e: int) -> InputError:
        """The error for the refused action of env e, which is outside the action space or illegal."""
        action, host = self._actions[e].tolist()
        if not (0 <= action < self.num_actions and 0 <= host < self.layout.hosts):
            hosts = f" and a host from 0 to {self.layout.hosts - 1}" if self.joint else ""
            hint = f"give an action from 0 to {self.num_actions - 1}{hosts}"
            return InputError(f"the action of env {e} is outside the action space", hint=hint)
        action = [action, host] if self.joint else action
        return InputError(
            f"action {action} is not legal in env {e}",
            hint='choose an action for which info["action_mask"] is true, or make the env with illegal="wait"',
        )

    def draw_legal(self, seed: int | None = None) -> I64:
        """Random legal actions [E] or [E, 2], drawn by compiled code. A seed restarts the generators.

        A caller that asks once usually asks again, so the next step ends with drawing, on the threads that step.
        """
        if seed is not None or not self._seeded:
            self._frame.generator[:] = np.random.default_rng(seed).integers(1, 2**63, self.size)
            self._seeded, self._drawn = True, False
        if not self._drawn:
            for e in range(self.size):
                self._template(e)  # raises if the env has not been reset
            draw_for_all(self._call, self.size)
        self._drawn, self._asked = False, True
        return self._random

    def episode(self, e: int) -> Episode:
        return self._template(e).episode

    def _template(self, e: int) -> Template:
        template = self._templates[e]
        if template is None:
            raise InputError("the environment has not been reset", hint="call reset() first")
        return template

    def state(self, e: int) -> State:
        """The live arrays of env e."""
        return self._template(e).block.view(STATE, self._memory[e])

    def episode_state(self, e: int) -> EpisodeState:
        return self._template(e).block.view(EPISODE_STATE, self._memory[e])

    def machine(self, e: int) -> Machine:
        return self._template(e).block.view(MACHINE, self._memory[e])

    def window_jobs(self, e: int) -> I32:
        """[Q] the job in each slot of the window, -1 if the slot is empty."""
        episode_state = self.episode_state(e)
        jobs = np.full(self.layout.window, -1, np.int32)
        shown = min(int(episode_state.count.waiting), self.layout.window)
        jobs[:shown] = episode_state.waiting[:shown]
        return jobs

    def running_jobs(self, e: int) -> I32:
        """[P] the running job in each slot for jobs that may be preempted, -1 if the slot is empty."""
        episode_state = self.episode_state(e)
        jobs = np.full(self.layout.stops, -1, np.int32)
        shown = int(episode_state.count.listed)
        jobs[:shown] = episode_state.stop_job[:shown]
        return jobs

    def schedule(self, e: int, policy: str = "env") -> Schedule:
        """What has happened in env e so far."""
        episode = self.episode(e)
        state: State = self._template(e).block.view(STATE, self._memory[e].copy())
        num_jobs = len(episode.workload)
        state = state.replace(status=state.status[:num_jobs], start=state.start[:num_jobs], end=state.end[:num_jobs])
        state.end[state.status == RUNNING] = NEVER  # do not reveal when running jobs will end
        state.status[(state.status == DONE) & episode.killed] = KILLED
        estimates = self.settings.estimates or default_estimates(episode.workload)
        known = episode.rules, state, episode.estimate, policy, estimates, 0.0, episode.circumstances.conditions
        return schedule_of(episode.workload, self.cluster, *known)

    def metrics(self, e: int) -> dict[str, Any]:
        """All figures of docs/metrics.md for the window's own jobs in env e so far, empty for an episode without jobs."""
        episode = self.episode(e)
        return all_metrics(measure_from(self.schedule(e), episode.first_own)) if len(episode.workload) else {}

    def illegal_actions(self, e: int) -> int:
        """How many actions of env e's episode were illegal."""
        return int(self.episode_state(e).count.illegal)

    def tally(self, e: int) -> dict[str, float]:
        """Sums of env e's episode, which ended in the last step. `metrics` has all figures of docs/metrics.md."""
        return dict(zip(columns.TALLY, self.tallies[:, e].tolist(), strict=True))

    def bytes_per_env(self) -> int:
        """Bytes of memory that one env needs: its block of arrays and its rows of the buffers."""
        rows = (
            *(rows.observations for rows in self._rows),
            self.finals,
            self.mask,
            self.rewards,
            self.elapsed,
            self.tallies,
            self._actions,
        )
        return max(len(memory) for memory in self._memory) + sum(row.nbytes for row in rows) // self.size

    def close(self) -> None:
        if self._step_threads is not None:
            self._step_threads.close()
            self._step_threads = None
