"""Names of policies put together from sound and damaged parts, policy files with mistakes, and damaged rules of `queuewise learn`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from fuzz.cases import DAMAGED_VALUES, GPU_LOG, Case, change_bytes, change_value, in_words, locations, remove_value
from queuewise.config import to_toml
from queuewise.policies.found_rules import NUMBERS

PARTS = (
    "fcfs", "sjf", "wfp3", "wise", "tiresias", "multifactor", "random", "drf", "defrag", "model", "mine.py:score", "nowhere.py:f",
    "mine.py",
    "+", "+easy", "+conservative", "+greedy", "+slurm", "+defrag", "/", "/0", "/3", "/99999999999", "/-1", ":", ":sjf", ":predicted", ":gb",
    ":oracle", ":noisy:-1", ":log", "~", "~3d", "~0s", "~1e999d", "~-1h", "@", "@pack", "@pack:2", "@pack:-1", "@tier:x", "@mine.py:place",
    "@fgd", "~/", "..", "\0", "\n", " ", "é", "١", "%s", "{}", "-", "*", "x" * 300,
)  # fmt: skip
FILES = {
    "syntax": "def score(job:\n",
    "no-name": "x = 1\n",
    "not-callable": "score = 3\n",
    "exit": "import sys\nsys.exit(3)\n",
    "raises": "raise ValueError('one\\ntwo')\n",
    "import": "import nowhere_at_all\n",
    "stops": "raise StopIteration\n",
    "memory": "x = bytearray(1 << 60)\n",
    "recursion": "def f():\n    f()\nf()\n",
    "indent": "def score(job):\nreturn 1\n",
    "tabs": "def score(job):\n\tif 1:\n        return 1\n",
    "bytes": "\0\0",
    "no-parameters": "def score():\n    return 1.0\n",
    "unknown-parameter": "def score(job, weather):\n    return 1.0\n",
    "unknown-field": "def score(job):\n    return job.runtime\n",
    "writes": "def score(job):\n    job.wait = 3\n    return 1.0\n",
    "star": "def score(*job):\n    return 1.0\n",
    "lambda": "score = lambda job: 1.0\n",
    "builtin": "score = len\n",
    "generator": "def score(job):\n    yield 1.0\n",
    "async": "async def score(job):\n    return 1.0\n",
    "text": "def score(job):\n    return 'x'\n",
    "nan": "def score(job):\n    return float('nan')\n",
    "divides": "def score(job):\n    return 1.0 / (job.wait - job.wait)\n",
    "limit": "TIME_LIMIT_S = 'x'\ndef score(job):\n    return 1.0\n",
    "params": "PARAMS = ['x']\ndef score(job, params):\n    return params[0]\n",
    "state": "STATE_SIZE = 10**12\ndef score(job, state):\n    return state[0]\n",
    "class-empty": "class score:\n    pass\n",
    "class-init": "class score:\n    def __init__(self, x):\n        pass\n    def decide(self, view):\n        return []\n",
    "class-raises": "class score:\n    def decide(self, view):\n        raise RuntimeError('no')\n",
    "class-exits": "class score:\n    def decide(self, view):\n        raise SystemExit\n",
    "class-none": "class score:\n    def decide(self, view):\n        return None\n",
    "class-text": "class score:\n    def decide(self, view):\n        return ['x']\n",
    "class-numbers": "class score:\n    def decide(self, view):\n        return [1e30, -1]\n",
    "slurm-config": "SchedulerParameters = bf_interval=-1e30,bf_window=nan,bf_resolution=0\n",
}

RULE: dict[str, Any] = {
    "format": 1,
    "order_estimates": "predicted",
    "scheduling": "+easy:sjf:predicted~3d",
    "estimates": "requested",
    "numbers": {name: 0.25 * number for number, name in enumerate(NUMBERS)},
    "trained_on": [
        {
            "log": "ab",
            "jobs": "cd",
            "sample": [[30, 141], [60, 232]],
            "split": [0.45, 0.2, 0.35],
            "train": [0.0, 300.0],
            "val": [330.0, 400.0],
        }
    ],
}
NOT_NAMES = (
    "+slow",
    "+easy:",
    "~",
    "@",
    "@nowhere",
    "+easy~3d~4d",
    "+slurm:/etc/passwd",
    "+easy:mine.py:score",
    '"""\nraise SystemExit\n"""',
    "]]--",
)
USES = (
    ("simulate", "--workload", "log", "--cluster", "4x8:V100-16", "--policy", "model:rule.toml"),
    ("export", ".", "--out", "rule.py"),
    ("evaluate", "--workload", "log", "--cluster", "4x8:V100-16", "--policy", "model:.", "--split", "0.3,0.3,0.4"),
    ("export", "rule.toml", "--out", "rule.lua"),
)


def rule_cases(seed: int, times: int = 3) -> Iterator[Case]:
    """Every field of a rule with damaged values, or left out, and damaged text."""
    rng = random.Random(f"{seed} rules")
    for number, place in enumerate(list(locations(RULE)) * times):
        value = rng.choice((*DAMAGED_VALUES, *NOT_NAMES) if isinstance(place[-1], str) and len(place) == 1 else DAMAGED_VALUES)
        if number % 10 == 9:
            yield _rule_case(f"{number}-without-{'.'.join(map(str, place))}", number, to_toml(remove_value(RULE, place)).encode())
        else:
            yield _rule_case(f"{number}-{in_words(place, value)}", number, to_toml(change_value(RULE, place, value)).encode())
    for number in range(12):
        yield _rule_case(f"text-{number}", number, change_bytes(rng, to_toml(RULE).encode(), 2))


def _rule_case(words: str, number: int, content: bytes) -> Case:
    return Case(f"rule-{words}", USES[number % len(USES)], {"log": GPU_LOG, "rule.toml": content, "mine.py": b"raise SystemExit(7)\n"})


def name_cases(seed: int, number: int = 70) -> Iterator[Case]:
    rng = random.Random(f"{seed} names")
    mine = b"def score(job):\n    return job.estimate\ndef place(node, job):\n    return 1.0\n"
    for index in range(number):
        name = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 4)))
        if "mine.py" in name and index % 3:  # to compile a function takes a second
            name = name.replace("mine.py:", "")
        yield Case(f"name-{index}-{ascii(name)[:40]}", _simulate(name), {"log": GPU_LOG, "mine.py": mine})


def file_cases() -> Iterator[Case]:
    for words, text in FILES.items():
        name = "fcfs+slurm:mine.py" if words == "slurm-config" else "mine.py:score"
        yield Case(f"file-{words}", _simulate(name), {"log": GPU_LOG, "mine.py": text.encode()})
    yield Case("file-placement", _simulate("fcfs@mine.py:score"), {"log": GPU_LOG, "mine.py": b"def score(node):\n    return node.x\n"})


def _simulate(policy: str) -> tuple[str, ...]:
    return "simulate", "--workload", "log", "--cluster", "4x8:V100-16", f"--policy={policy}"
