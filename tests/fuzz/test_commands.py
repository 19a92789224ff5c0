"""Every broken input of the corpus, through the command line: an exit code that docs name, at most one error with its hint, no
traceback, and an answer within seconds."""

from __future__ import annotations

import contextlib
import faulthandler
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fuzz.broken_logs import deep_cases, log_cases, packed_cases
from fuzz.broken_policies import RULE, USES, file_cases, name_cases, rule_cases
from fuzz.broken_runs import RUN_CASES, DamagedRun, damage_run
from fuzz.broken_settings import (
    CLUSTER,
    CONDITIONS,
    POLICIES,
    RESERVED,
    WITHOUT_PREEMPTION,
    cluster_cases,
    condition_cases,
    option_cases,
)
from fuzz.broken_snapshots import SNAPSHOT_USES, SOUND_FILES, audit_cases, script_cases, snapshot_cases
from fuzz.cases import GPU_LOG, Case
from fuzz.huge_numbers import number_cases
from queuewise.cli import main
from queuewise.config import to_toml

SEED = 0
SECONDS = 20  # for one case
SECONDS_COMPILED = 120  # after so many the process ends: compiled code does not see the limit above
CASES = [
    *log_cases(SEED), *packed_cases(SEED), *deep_cases(),
    *cluster_cases(SEED), *condition_cases(SEED), *option_cases(),
    *name_cases(SEED), *file_cases(), *rule_cases(SEED), *number_cases(),
    *snapshot_cases(SEED), *audit_cases(SEED), *script_cases(SEED),
]  # fmt: skip
SOUND = SOUND_FILES | {"rule.toml": to_toml(RULE).encode()}
STORED = Path(__file__).parent.parent / "unit" / "agents" / "stored_runs" / "ppo"


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever the cases run is compiled before, and does not count as a hang."""
    home = tmp_path_factory.mktemp("compiled")
    (home / "log.csv").write_bytes(GPU_LOG)
    (home / "mine.py").write_text("class Idle:\n    def decide(self, view):\n        return []\n")
    (home / "cluster.toml").write_text(to_toml(CLUSTER))
    usual = ["simulate", "--workload", str(home / "log.csv"), "--cluster"]
    for policy, code in {"fcfs+easy": 0, f"{home / 'mine.py'}:Idle": 2, f"model:{STORED}": 0}.items():  # Idle starts no job
        assert main([*usual, "2x4:V100-16", "--policy", policy]) == code
    for conditions, policies in (({}, POLICIES), (CONDITIONS, POLICIES), (RESERVED, WITHOUT_PREEMPTION)):
        (home / "conditions.toml").write_text(to_toml(conditions))
        every = [word for policy in policies for word in ("--policy", policy)]
        given = ["--conditions", str(home / "conditions.toml")] if conditions else []
        assert main([*usual, str(home / "cluster.toml"), *every, *given]) == 0
    for name, content in SOUND.items():
        (home / name).write_bytes(content)
    with contextlib.chdir(home):
        for arguments in (*SNAPSHOT_USES, *USES[::2]):
            assert main(arguments) == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, and an end to what hangs."""
    monkeypatch.chdir(tmp_path)
    faulthandler.dump_traceback_later(SECONDS_COMPILED, exit=True)
    yield tmp_path
    faulthandler.cancel_dump_traceback_later()


def answer(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run the command and check its answer, whatever it is."""
    code = main(arguments)
    _, err = capsys.readouterr()
    told = [line for line in err.splitlines() if line.startswith(("error:", "hint:"))]
    assert code in (0, 2, 3), err
    assert "Traceback" not in err
    if code != 2:
        assert not told
        return
    assert [line.partition(": ")[0] for line in told] == ["error", "hint"], err
    assert err.splitlines()[-2:] == told, err  # each of them is one line, and nothing follows
    assert all(line.isprintable() and len(line) < 4000 for line in told), ascii(err)


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [case.name for case in CASES] + [case.name for case in RUN_CASES]
    assert len(set(names)) == len(names) >= 300


@pytest.mark.timeout(SECONDS, func_only=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broken_inputs(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    answer(case.arguments, capsys)


@pytest.fixture(scope="session")
def sound_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind."""
    home = tmp_path_factory.mktemp("sound")
    (home / "log.csv").write_bytes(GPU_LOG)
    inputs = ("--workload", str(home / "log.csv"), "--cluster", "2x4:V100-16", "--policy", "fcfs", "--policy", "sjf+easy")
    assert main(["simulate", *inputs, "--out", str(home / "simulated")]) == 0
    windows = ("--windows", "2", "--window-jobs", "8", "--start", "empty")
    assert main(["evaluate", *inputs, *windows, "--out", str(home / "evaluated")]) == 0
    shutil.copytree(STORED, home / "trained")
    return home


@pytest.mark.timeout(SECONDS, func_only=True)
@pytest.mark.parametrize("case", RUN_CASES, ids=lambda case: case.name)
def test_damaged_runs(case: DamagedRun, sound_runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = damage_run(sound_runs / case.run, case, SEED, folder)
    try:
        answer(case.arguments, capsys)
    except Exception as error:
        error.add_note(done)
        raise
