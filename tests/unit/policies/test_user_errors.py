"""What is wrong with a user's own policy is told in one line, with the file and the line, and ends the command with code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from queuewise.cli import main
from queuewise.cluster import load_cluster
from queuewise.errors import InputError
from queuewise.policies import parse_policy, simulate, user_code
from queuewise.policies.user_code import find_user_code
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

SOURCE = """import math
STATE_SIZE = 2
TIME_LIMIT_S = 0.5

def misspelt(job):
    return job.estimat

def greedy(job, cores):
    return job.estimate

def anything(*args):
    return 0.0

def meddles(job, now):
    job.priority = now
    return job.priority

def meddles_by_alias(job, now):
    other = job
    other.priority = now
    return now

def meddles_with_queue(queue, job):
    queue.length += 1
    return job.submit

def opens(job):
    size = 3
    return len(open("x").read()) + size

def unknown(job, now):
    return jobb.submit

def says_nothing(job):
    if job.estimate > 3:
        return 3.0

def says_a_word(job):
    return "first"

def gives_up(job, now):
    if now > 3:
        raise ValueError("I give up")
    return 0.0

def gives_up_at_once(job):
    return deeper(job)

def deeper(job):
    if job.index == 2:
        raise RuntimeError
    return 0.0

def not_a_number(job, now):
    return math.nan if job.index == 2 else 0.0

def never_a_number(job):
    return (job.submit - job.submit) / (job.submit - job.submit)

def forgets_its_bounds(job, state):
    state[int(job.index)] = 1.0
    return 0.0

def for_ever(job, now):
    return some_seconds(now) if now > 3 else now

def for_ever_at_once(job):
    return some_seconds(job.estimate)

def some_seconds(x):
    for _ in range(300_000_000):
        x = math.sin(x) + 1.0
    if x > 0:
        raise RuntimeError  # ends the thread that was given up: it would do the same for the next job, beside all tests that follow
    return x

def bad_node(node, job):
    return node.slot

def node_of_nan(node):
    return math.nan if node.index == 1 else 0.0

def node_that_raises(node, job):
    if job.remaining > 1:
        raise ValueError("too many")
    return 0.0

def node_for_ever(job):
    return some_seconds(job.gpus)

number = 3
"""


def line_of(text: str) -> int:
    """The line of the source that holds this text first."""
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def jobs() -> Workload:
    ones = np.ones(4, np.int32)
    return Workload(submit=np.array([0.0, 1.0, 2.0, 5.0]), runtime=np.full(4, 9.0), num_tasks=2 * ones, gpu_milli=1000 * ones)


BY_NAME = [
    ("misspelt", "job has no field 'estimat'", "did you mean 'estimate'", "job.estimat\n"),
    ("greedy", "a parameter 'cores'", "cluster, job, now, params, queue, state, user", "def greedy"),
    ("anything", "a parameter", "take any of them", "def anything"),
    ("meddles", "modifies job.priority", "read-only", "    job.priority = now"),
    ("meddles_by_alias", "modifies other.priority", "read-only", "    other.priority = now"),
    ("meddles_with_queue", "modifies queue.length", "read-only", "    queue.length += 1"),
    ("mispelt", "has no 'mispelt'", "did you mean 'misspelt'", ""),
    ("number", "number is a int", "known", ""),
]
BY_COMPILER = [
    ("opens", "cannot be compiled.*'open'", "a class may do anything", "    return len(open"),
    ("unknown", "cannot be compiled.*'jobb'", "a class may do anything", "    return jobb"),
    ("says_nothing", "returns None on some path", "return one number", "def says_nothing"),
    ("says_a_word", "returns unicode_type, not a number|returns Literal", "return one number", "def says_a_word"),
]
BY_RUNNING = [
    ("gives_up", "ValueError: I give up", "while it was running", '        raise ValueError("I'),
    ("gives_up_at_once", "RuntimeError", "while it was running", "        raise RuntimeError"),
    ("not_a_number", r"returned NaN for job 2 \(counted from 0\)", "return a number", "def not_a_number"),
    ("never_a_number", "returned NaN for job 0", "return a number", "def never_a_number"),
    ("forgets_its_bounds", "IndexError: index is out of bounds", "while it was running", "def forgets_its_bounds"),
    ("for_ever", "did not return within 0.5 s", "TIME_LIMIT_S", "def for_ever(job"),
    ("for_ever_at_once", "did not return within 0.5 s", "TIME_LIMIT_S", "def for_ever_at_once"),
]
NODES = [
    ("bad_node", "node has no field 'slot'", "did you mean 'slots'", "    return node.slot"),
    ("misspelt", "job has no field 'estimat'", "remaining", "job.estimat\n"),
    ("for_ever", "a parameter 'now'", "job, node", "def for_ever(job"),
    ("node_of_nan", "returned NaN for node 1", "return a number", "def node_of_nan"),
    ("node_that_raises", "ValueError: too many", "while it was running", '        raise ValueError("too'),
    ("node_for_ever", "did not return within 0.5 s", "TIME_LIMIT_S", "def node_for_ever"),
]


def assert_told(error: InputError, mine: str, hint: str, text: str) -> None:
    assert error.where == (f"{mine}:{line_of(text)}" if text else mine)
    assert "\n" not in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(("name", "message", "hint", "text"), BY_NAME)
def test_told_when_the_name_is_read(mine: str, name: str, message: str, hint: str, text: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_policy(f"{mine}:{name}+easy")
    assert_told(caught.value, mine, hint, text)


@pytest.mark.parametrize(("name", "message", "hint", "text"), BY_COMPILER)
def test_told_when_it_is_compiled(mine: str, name: str, message: str, hint: str, text: str) -> None:
    parsed = parse_policy(f"fcfs+easy:{mine}:{name}")
    with pytest.raises(InputError, match=message) as caught:
        parsed.compile()
    assert_told(caught.value, mine, hint, text)


@pytest.mark.parametrize(("name", "message", "hint", "text"), BY_RUNNING)
def test_told_when_it_runs(mine: str, name: str, message: str, hint: str, text: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        simulate(jobs(), load_cluster("1x3:V100-16"), f"{mine}:{name}", estimates="oracle")
    assert_told(caught.value, mine, hint, text)


@pytest.mark.parametrize(("name", "message", "hint", "text"), NODES)
def test_the_same_of_functions_that_score_nodes(mine: str, name: str, message: str, hint: str, text: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        simulate(jobs(), load_cluster("2x1:V100-16"), f"fcfs@{mine}:{name}", estimates="oracle")
    assert_told(caught.value, mine, hint, text)


@pytest.mark.parametrize(
    ("source", "reference", "message", "where"),
    [
        (None, "mine.py:score", "cannot be read: No such file", "mine.py"),
        ("def score(job):\n    return (\n", "mine.py:score", "is not valid Python", "mine.py:2"),
        ("x = 1\ny = x / 0\n", "mine.py:score", "cannot be loaded: ZeroDivisionError", "mine.py:2"),
        ("x = 1\nraise SystemExit(3)\n", "mine.py:score", "cannot be loaded: SystemExit: 3", "mine.py:2"),
        ("import time\nTIME_LIMIT_S = 0.5\nwhile True: time.sleep(1)\n", "mine.py:score", "did not load within 0.5 s", "mine.py:3"),
        (
            "import time\ndef f():\n    while True: time.sleep(1)\nf()\nTIME_LIMIT_S: float = 0.5\n",
            "mine.py:f",
            "did not load within 0.5 s",
            "mine.py:4",
        ),
        ("import nothing_of_this_name\n", "mine.py:score", "cannot be loaded: ModuleNotFoundError", "mine.py:1"),
        ("STATE_SIZE = -1\ndef score(job, state):\n    return 0.0\n", "mine.py:score", "STATE_SIZE is -1", "mine.py"),
        ("def score(job, state):\n    return 0.0\n", "mine.py:score", "takes a state", "mine.py:1"),
        ("class Mine:\n    pass\n", "fcfs+easy:mine.py:Mine", "Mine is a class", "mine.py:1"),
        ("def score(job):\n    return 0.0\n", "mine.py", "does not name a function", ""),
        ("def score(job):\n    return 0.0\n", "mine.py:", "does not name a function", ""),
        ("def score(job):\n    return 0.0\n", "mine.py:a-b", "does not name a function", ""),
    ],
)
def test_files_that_are_no_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, reference: str, message: str, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if source is not None:
        Path("mine.py").write_text(source, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        parse_policy(reference)
    assert caught.value.where == where


@pytest.mark.parametrize(("source", "name"), [("", "f"), ("import math\n", "f"), ("number = 3\n", "number")])
def test_a_file_without_functions_says_so(tmp_path: Path, source: str, name: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        parse_policy(f"{path}:{name}")
    assert caught.value.hint == "the file defines no function or class"


@pytest.mark.parametrize(("name", "message"), [("opens", "cannot be compiled"), ("gives_up", "I give up"), ("for_ever", "did not return")])
@pytest.mark.parametrize("command", ["simulate", "evaluate"])
def test_a_command_ends_with_code_2_and_two_lines(
    mine: str, name: str, message: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command, "--workload", "bench", "--jobs", "200", "--cluster", "1x8:V100-16", "--policy", f"{mine}:{name}"]
    assert main([*arguments, *(["--windows", "2", "--window-jobs", "100"] if command == "evaluate" else [])]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("error: ", "hint: "))]
    assert message in told[0]
    assert f"{mine}:" in told[0]
    assert len(told) == 2


def test_a_command_says_how_long_compilation_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def score(job):\n    return job.width\n", encoding="utf-8")
    arguments = ["simulate", "--workload", "bench", "--jobs", "200", "--cluster", "1x8:V100-16", "--json"]
    assert main([*arguments, "--policy", f"{path}:score"]) == 0
    assert f"compiled {path}:score in " in capsys.readouterr().err


def test_a_process_can_be_traced_after_a_function_was_given_up(tmp_path: Path) -> None:
    """By a debugger, or for coverage: nothing may stay pending in the abandoned thread."""
    (tmp_path / "own.py").write_text(
        "TIME_LIMIT_S = 0.3\n\ndef stuck(job, now):\n    x = 1.0\n    while x > 0:\n        x += job.submit * 0\n    return x\n",
        encoding="utf-8",
    )
    script = (
        "import sys, queuewise\n"
        "from queuewise.workload.models import generate\n"
        f"try:\n    queuewise.simulate(generate('poisson', 20), queuewise.load_cluster('2x4:V100-16'), r'{tmp_path / 'own.py'}:stuck')\n"
        "except queuewise.QueuewiseError as error:\n    print('given up')\n"
        "lines = []\n"
        "def trace(frame, event, argument):\n    lines.append(event)\n    return trace\n"
        "def traced():\n    return sum(range(3))\n"
        "sys.settrace(trace)\ntraced()\nsys.settrace(None)\nprint('traced', len(lines) > 1, flush=True)\nimport os\nos._exit(0)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400, check=False)
    assert found.stdout.split("\n")[:2] == ["given up", "traced True"], found.stderr


@pytest.mark.parametrize("raised", ["GeneratorExit", "SystemExit(0)", "type('Odd', (BaseException,), {})()"])
@pytest.mark.parametrize("source", ["raise {}\n", "class Mine:\n    def decide(self, view):\n        raise {}\n"])
def test_whatever_a_file_raises_names_its_line(source: str, raised: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source.format(raised))
    with pytest.raises(InputError, match=r"mine\.py:[13]: "):
        simulate(generate("bench", 20), load_cluster("2x4:V100-16"), f"{path}:Mine")


def test_only_the_last_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded() -> int:
        return sum(name.startswith("queuewise_own_") for name in sys.modules)

    monkeypatch.setattr(user_code, "KEPT_FILES", 3)
    path = tmp_path / "mine.py"
    for number in range(8):
        path.write_text(f"def score(job):\n    return {number}.0\n")
        find_user_code(f"{path}:score")
    assert loaded() == 3
    path.write_text("raise ValueError")
    with pytest.raises(InputError, match="ValueError"):
        find_user_code(f"{path}:score")
    assert loaded() == 3
