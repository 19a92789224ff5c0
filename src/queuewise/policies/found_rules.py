"""Rules that a search has found: data in `rule.toml`, played by the compiled functions of `rule_family`.

A rule is an order with numbers of its own, the estimates it sorts by, a backfill and a bound on waiting. Its name as a policy is
`model:RUN`, like that of a trained network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from queuewise.config import parse_toml
from queuewise.errors import InputError, unknown_name
from queuewise.plain_text import printable

FILE = "rule.toml"
FORMAT = 1
GENERALISTS = Path(__file__).with_name("generalists")
GENERALIST_NAMES = ("generalist-hpc", "generalist-gpu")  # rules of the package, for logs that they have not seen
SCORE, WATCHFUL, PATIENT = (f"<rules>.py:{name}" for name in ("score", "watchful", "patient"))  # of rule_family
ORDER_NUMBERS = (
    "log_runtime", "log_width", "log_runtime_squared", "log_width_squared", "log_runtime_log_width", "share", "share_log_runtime",
    "age", "log_age_hours",
)  # fmt: skip
HOLD_NUMBERS = ("hold", "hold_log_runtime", "hold_age")
BLOCKED_NUMBERS = ("blocked", "blocked_share")
GUARD = "guard"
NUMBERS = (*ORDER_NUMBERS, *HOLD_NUMBERS, *BLOCKED_NUMBERS, GUARD, "hold_share", "hold_hours")  # the PARAMS of the family, in order
SEARCHED = (*ORDER_NUMBERS, *BLOCKED_NUMBERS, GUARD)
SEARCHED_IF_EXACT = (*SEARCHED, *HOLD_NUMBERS, "hold_share")  # with runtimes that are only guessed, holding jobs back does not pay
NEVER_NEGATIVE = ("age", "hold_age", GUARD, "hold_hours")  # jobs must not fall back as they age
LARGEST = 1e6  # of the numbers
LARGEST_LOG = 100.0  # of log_age_hours
PARTS = re.compile(r"[A-Za-z0-9+:~@/._-]*")  # of names: what a file says must not become code where it is written to another one
HINT = "queuewise learn writes such files; docs/learning.md describes them"


@dataclass(frozen=True)
class FoundRule:
    """`numbers` in the order of NUMBERS. `scheduling` is what follows the order in a policy's name, such as `+easy:sjf:predicted~3d`."""

    numbers: tuple[float, ...]
    order_estimates: str = ""  # that the order goes by; empty: those of the replay
    scheduling: str = "+easy"
    estimates: str = ""  # of the replays it was found on

    def _uses(self, *names: str) -> bool:
        return any(self.numbers[NUMBERS.index(name)] for name in names)

    @property
    def holds(self) -> bool:
        """Whether it ever holds a job back, or passes one over."""
        return self._uses("hold", "hold_log_runtime", "hold_share", GUARD)

    @property
    def watches(self) -> bool:
        """Whether it matters to its order if a job fits now."""
        return self._uses(*BLOCKED_NUMBERS)

    @property
    def policy(self) -> str:
        """The name of the policy that plays it, if these numbers are given as its params."""
        estimates = f":{self.order_estimates}" if self.order_estimates else ""
        return f"{PATIENT if self.holds else WATCHFUL if self.watches else SCORE}{estimates}{self.scheduling}"

    @property
    def formula(self) -> str:
        """The score as a reader would write it; the least goes first."""
        n = dict(zip(NUMBERS, self.numbers, strict=True))
        terms = {
            "r": n["log_runtime"], "w": n["log_width"], "r²": n["log_runtime_squared"], "w²": n["log_width_squared"],
            "r·w": n["log_runtime_log_width"], "s": n["share"], "s·r": n["share_log_runtime"],
        }  # fmt: skip
        text = " ".join(f"{value:+.3g}·{term}" for term, value in terms.items() if value) or "0"
        age = f" − {n['age']:.3g}·log(1 + wait ÷ {math.exp(n['log_age_hours']):.3g} h)" if n["age"] else ""
        blocked = f" {n['blocked']:+.3g}·[blocked] {n['blocked_share']:+.3g}·m" if self.watches else ""
        return f"{text.removeprefix('+')}{age}{blocked}"

    def describe(self) -> str:
        """One line about it."""
        by = f" by {self.order_estimates}" if self.order_estimates else ""
        return f"a rule found with {self.estimates} estimates: {self.formula}{by}, {self.scheduling}{self._patience}"

    @property
    def _patience(self) -> str:
        """When it holds jobs back, as a reader would write it."""
        n = dict(zip(NUMBERS, self.numbers, strict=True))
        kept = f"{n['hold']:.3g} {n['hold_log_runtime']:+.3g}·r {n['hold_share']:+.3g}·s"
        text = f"; keeps ({kept}) ÷ (1 + {n['hold_age']:.3g}·wait ÷ runtime) of the machine free" if self.holds else ""
        hours = f" for {n['hold_hours']:.3g} h" if self.holds and n["hold_hours"] else ""
        return f"{text}{hours}" + (f"; reserves after {n[GUARD]:.3g} runtimes" if n[GUARD] else "")

    def without(self, name: str) -> FoundRule:
        """The same rule with one of its numbers set to 0."""
        return replace(self, numbers=tuple(0.0 if own == name else value for own, value in zip(NUMBERS, self.numbers, strict=True)))


def rule_file(run: str | Path) -> Path | None:
    """The file of the rule that a reference to a run names, if it names one: a file, a folder, or a rule of the package."""
    home = Path(run).expanduser()
    if str(run) in GENERALIST_NAMES and not home.exists():
        return GENERALISTS / f"{run}.toml"
    if home.name == FILE and home.is_file():
        return home
    return home / FILE if (home / FILE).is_file() else None


def read_rule(path: Path) -> FoundRule:
    """Read and check a rule."""
    data = rule_data(path)
    texts = {name: data.get(name, "") for name in ("order_estimates", "scheduling", "estimates")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _refusal(path, f"{name} is {text!r}, not a text")
        if not PARTS.fullmatch(text) or ".py" in text:  # data of others must not run code
            raise _refusal(path, f"{name} is {text!r}, which is more than the name of a backfill, a bound or estimates")
    return FoundRule(_numbers(path, data.get("numbers")), **texts)


def rule_data(path: Path) -> dict[str, Any]:
    """What the file of a rule holds, beside the rule also where it was found."""
    data = parse_toml(path)
    if data.get("format") != FORMAT:
        raise _refusal(path, f"has format {data.get('format')!r}; this version reads {FORMAT}")
    return data


def _refusal(path: Path, problem: str) -> InputError:
    return InputError(problem, where=str(path), hint=HINT)


def _numbers(path: Path, table: Any) -> tuple[float, ...]:
    if not isinstance(table, Mapping):
        raise _refusal(path, "has no table [numbers]")
    for name, value in table.items():
        if name not in NUMBERS:
            raise _refusal(path, str(unknown_name("number", name, NUMBERS)))
        most = LARGEST_LOG if name == "log_age_hours" else LARGEST
        if isinstance(value, bool) or not isinstance(value, int | float) or not -most <= value <= most:
            raise _refusal(path, f"{name} is {value!r}, not a number from {-most:g} to {most:g}")
    if any(table.get(name, 0.0) < 0 for name in NEVER_NEGATIVE):
        raise _refusal(path, f"lets jobs fall back as they age: {', '.join(NEVER_NEGATIVE)} are not below 0")
    return tuple(float(table.get(name, 0.0)) for name in NUMBERS)


def rule_text(rule: FoundRule, about: Mapping[str, str]) -> str:
    """The contents of `rule.toml`; `about` are comments."""
    lines = [f"# {name}: {printable(text)}" for name, text in about.items()]
    lines += [f"# score: {rule.formula}   (r = log(runtime ÷ 1 h), w = log(width), s = width ÷ machine; the least goes first)"]
    lines += ["", f"format = {FORMAT}"]
    lines += [f'{name} = "{value}"' for name, value in asdict(rule).items() if isinstance(value, str)]
    lines += ["", "[numbers]", *(f"{name} = {value!r}" for name, value in zip(NUMBERS, rule.numbers, strict=True) if value)]
    return "\n".join(lines) + "\n"
