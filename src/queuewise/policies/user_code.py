"""The user's own policies: `mine.py:name` names a function or a class in a file.

`find_user_code` loads the file. `check_function` checks everything that can be checked without running the function:
that its parameters and the fields it reads exist, and that it does not modify its arguments. Errors name the file and
the line, also those that occur later, during compilation (`uncompilable`) or at run time (`explained`). A file is
loaded again after it has changed.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from queuewise.errors import InputError, unknown_name
from queuewise.policies.records import ClusterRecord, Demand, Job, Node, Queue, UserRecord
from queuewise.regular_files import check_regular
from queuewise.sim import queue
from queuewise.sim.core.state import Counts
from queuewise.sim.core.tables import F64
from queuewise.sim.core.watch import run_watched
from queuewise.workload.history import HISTORY

SUFFIX = ".py"
SHIPPED = {"<rules>.py": Path(__file__).with_name("rule_family.py")}  # files of the package, by names that no path can be taken for
TIME_LIMIT_S = 20.0  # for one scoring of the queue, and for loading the file; a file may set its own TIME_LIMIT_S
MOST_STATE = 1_000_000  # numbers in the state of a function
IF_IT_IS_SLOW = "check for an endless loop; if it is only slow, set TIME_LIMIT_S in the file"
JOB_PARAMETERS: Mapping[str, type | None] = {
    "job": Job, "now": None, "queue": Queue, "cluster": ClusterRecord, "user": UserRecord, "params": None, "state": None,
}  # fmt: skip
KEPT_FILES = 64  # loaded at once
_LOADED: dict[tuple[str, str], tuple[ModuleType, ast.Module]] = {}  # by path and content, the last used at the end
HOLD = "_hold"  # end of the name of the function that holds jobs back
HOLD_ANSWERS = "return 0 if the job may start, otherwise seconds, or inf until the next event"
NODE_PARAMETERS: Mapping[str, type | None] = {"node": Node, "job": Demand, "params": None}


class NotANumber(ArithmeticError):
    """The function returned NaN for a job or node, or a negative time to hold. Arguments: reference, index."""


@dataclass(frozen=True, eq=False)
class UserCode:
    """A function or a class that a user wrote."""

    reference: str  # as the user names it
    path: str
    module: ModuleType
    value: Any  # a function or a class
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.reference.rpartition(":")[2]

    @property
    def file(self) -> Path:
        return SHIPPED.get(self.path) or Path(self.path)

    @property
    def is_class(self) -> bool:
        return isinstance(self.value, type)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.value).parameters)

    @cached_property
    def used_parameters(self) -> set[str]:
        """The parameters that the code of the function mentions: its result can depend on no others."""
        code = self.value.__code__
        mentioned = set(code.co_cellvars)  # by nested functions
        for instruction in dis.get_instructions(code):
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            mentioned.update(name for name in names if isinstance(name, str))
        return mentioned & set(self.parameters)

    @property
    def where(self) -> str:
        """The line where it is defined."""
        line = self.definition.lineno if self.definition is not None else self.value.__code__.co_firstlineno
        return f"{self.path}:{line}"

    def where_of(self, method: Any) -> str:
        """The line where a method is defined, or that of its class if the method is not in the file."""
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        return f"{self.path}:{code.co_firstlineno}" if code is not None and code.co_filename == self.path else self.where

    @property
    def definition(self) -> ast.FunctionDef | ast.ClassDef | None:
        named = (node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == self.name)
        return next(named, None)

    @property
    def time_limit_s(self) -> float:
        return float(self.setting("TIME_LIMIT_S", TIME_LIMIT_S, "a number of seconds above 0", lambda value: value > 0))

    @property
    def state_size(self) -> int:
        wanted = f"a whole number from 0 to {MOST_STATE:,}"
        return int(self.setting("STATE_SIZE", 0, wanted, lambda value: 0 <= value <= MOST_STATE and value == int(value)))

    @property
    def history(self) -> set[str]:
        """The columns of the history of jobs that the file mentions."""
        return {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute) and node.attr in HISTORY}

    @property
    def takes_params(self) -> bool:
        """Whether this function, or the one that holds jobs back, takes params."""
        if self.is_class:
            return False
        return "params" in self.parameters or (self.hold is not None and "params" in self.hold.parameters)

    @property
    def params(self) -> F64:
        """The PARAMS of the file."""
        values = getattr(self.module, "PARAMS", ())
        try:
            params = np.array(values, np.float64)
        except (TypeError, ValueError):
            params = np.zeros((1, 1))
        if params.ndim != 1 or not np.isfinite(params).all() or len(params) > queue.PARAMS_SIZE:
            raise InputError(f"PARAMS is {values!r}", where=self.path, hint=f"make it a list of at most {queue.PARAMS_SIZE} finite numbers")
        return params

    @cached_property
    def hold(self) -> UserCode | None:
        """The function beside this one that holds jobs back, if there is one."""
        if self.name.endswith(HOLD):
            return None
        named = self.name + HOLD
        return find_user_code(f"{self.path}:{named}") if hasattr(self.module, named) else None

    def setting(self, name: str, default: float, wanted: str, valid: Callable[[float], bool]) -> float:
        """A number that the file may set."""
        value = getattr(self.module, name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not valid(value):
            raise InputError(f"{name} is {value!r}", where=self.path, hint=f"make it {wanted}")
        return value


def is_reference(name: str) -> bool:
    """Whether a part of a policy's name is `FILE.py:NAME`."""
    return SUFFIX + ":" in name or name.endswith(SUFFIX)


def find_user_code(reference: str) -> UserCode:
    """The function or class that a reference names."""
    file, _, name = reference.rpartition(":")
    if not file.endswith(SUFFIX) or not name.isidentifier():
        raise InputError(f"{reference!r} does not name a function", hint="write FILE.py:NAME, for example mine.py:my_score")
    path = SHIPPED.get(file) or Path(file).expanduser()
    check_regular(path)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise InputError(
            f"cannot be read: {problem}", where=file, hint=f"queuewise new-policy {path.stem} writes one to start from"
        ) from None
    module, tree = _load(file, source)
    public = [key for key, value in vars(module).items() if isinstance(value, type | FunctionType) and value.__module__ == module.__name__]
    hint = unknown_name("name", name, public).hint if public else "the file defines no function or class"
    if not hasattr(module, name):
        raise InputError(f"has no {name!r}", where=file, hint=hint)
    value = getattr(module, name)
    value = getattr(value, "py_func", value)  # a function that is already compiled
    if not isinstance(value, type | FunctionType):
        raise InputError(f"{name} is a {type(value).__name__}, neither a function nor a class", where=file, hint=hint)
    return UserCode(reference, file, module, value, tree)


def _load(file: str, source: str) -> tuple[ModuleType, ast.Module]:
    """Run the file, once per version. Programs that search for policies load thousands of files, so only the last ones are kept."""
    version = (file, source)
    loaded = _LOADED.pop(version, None)
    if loaded is None:
        name = "queuewise_own_" + hashlib.sha256(f"{file}\n{source}".encode()).hexdigest()[:16]
        try:
            loaded = _run_file(name, file, source)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    _LOADED[version] = loaded
    while len(_LOADED) > KEPT_FILES:
        oldest, _ = _LOADED.pop(next(iter(_LOADED)))
        sys.modules.pop(oldest.__name__, None)
    return loaded


def _run_file(name: str, file: str, source: str) -> tuple[ModuleType, ast.Module]:
    """Run the file as a module of this name, under the time limit of its functions."""
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[module.__name__] = module  # where pickle and dataclasses look for it
    sys.path.insert(0, str(Path(file).resolve().parent))  # it may import modules beside it
    try:
        tree = ast.parse(source, file)
        code = compile(tree, file, "exec")
        in_the_file = Counts(user_calls=1)
        run_watched(lambda: exec(code, vars(module)), in_the_file, _stated_limit(tree))
    except TimeoutError:
        raise InputError(f"did not load within {_stated_limit(tree):g} s", where=_line_now(file) or file, hint=IF_IT_IS_SLOW) from None
    except SyntaxError as error:
        raise InputError(f"is not valid Python: {error.msg}", where=f"{file}:{error.lineno}", hint="fix this line") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises, SystemExit too
        raise InputError(
            f"cannot be loaded: {type(error).__name__}: {error}",
            where=_place(error, file) or file,
            hint="run it with python to see the full error",
        ) from None
    finally:
        sys.path.pop(0)
    return module, tree


def _stated_limit(tree: ast.Module) -> float:
    """The TIME_LIMIT_S of a file before it is run, if it sets a plain number (UserCode.setting checks it later)."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == "TIME_LIMIT_S" for target in targets):
            value = getattr(node.value, "value", None)  # type: ignore[attr-defined]
            return float(value) if isinstance(value, int | float) and value > 0 else TIME_LIMIT_S
    return TIME_LIMIT_S


def _line_now(file: str) -> str | None:
    """FILE:LINE where a thread that loads the file is now."""
    for frame in sys._current_frames().values():
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename == file and caller.f_code.co_name == "<module>":
                return f"{file}:{caller.f_lineno}"
            caller = caller.f_back
    return None


# --- checks


def check_function(own: UserCode, known: Mapping[str, type | None]) -> None:
    """Check the parameters and the fields that are read, and that none is modified."""
    for name, parameter in inspect.signature(own.value).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name not in known:
            raise InputError(
                f"{own.name} has a parameter {str(parameter).split('=', maxsplit=1)[0].strip()!r}, which does not exist",
                where=own.where,
                hint=f"{unknown_name('parameter', name, known).hint}; take any of them, in any order",
            )
    if "state" in own.parameters and not own.state_size:
        raise InputError(
            f"{own.name} takes a state, but the file does not set its size",
            where=own.where,
            hint="add for example STATE_SIZE = 4 for four numbers",
        )
    if "params" in own.parameters and not len(own.params):
        raise InputError(
            f"{own.name} takes params, but the file does not set them", where=own.where, hint="add for example PARAMS = [1.0, 0.5]"
        )
    if isinstance(own.definition, ast.FunctionDef):
        for node in ast.walk(own.definition):
            _check_access(own, node, known)


def _check_access(own: UserCode, node: ast.AST, known: Mapping[str, type | None]) -> None:
    if not isinstance(node, ast.Attribute):
        return
    where = f"{own.path}:{node.lineno}"
    if not isinstance(node.ctx, ast.Load):
        raise InputError(f"{own.name} modifies {ast.unparse(node)}", where=where, hint="records are read-only; keep numbers in state")
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    record = known.get(name) if name in own.parameters else None
    fields: Sequence[str] = record._fields if record is not None else (node.attr,)  # type: ignore[attr-defined]
    if node.attr not in fields:
        raise InputError(f"{name} has no field {node.attr!r}", where=where, hint=unknown_name("field", node.attr, fields).hint)


# --- errors at run time and in compilation


@contextmanager
def explained(own: Sequence[UserCode]) -> Iterator[None]:
    """Turn exceptions of the user's code into an InputError that names the file and the line."""
    try:
        yield
    except InputError:
        raise
    except TimeoutError:
        names = " or ".join(o.name for o in own)
        raise InputError(
            f"{names} did not return within {min(o.time_limit_s for o in own):g} s",
            where=own[0].where,
            hint=IF_IT_IS_SLOW,
        ) from None
    except NotANumber as error:
        reference, index = error.args
        culprit = next(o for o in own if o.reference == reference)
        raise _no_number(culprit, index) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        places = [place for o in own if (place := _place(error, o.path))]
        if not places and isinstance(error, IndexError) and own:
            places = [own[0].where]  # compiled code does not report the line of an index error
        if not places:
            raise
        raise InputError(
            f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
            where=places[0],
            hint="the policy raised this error while it was running",
        ) from None


def _no_number(own: UserCode, index: int) -> InputError:
    thing = "node" if "node" in own.parameters else "job"
    if own.name.endswith(HOLD):
        what, hint = "NaN or a negative time", HOLD_ANSWERS
    else:
        what, hint = "NaN", "return a number, or inf to go last; 0/0 and inf−inf are NaN"
    return InputError(f"{own.name} returned {what} for {thing} {index} (counted from 0)", where=own.where, hint=hint)


def uncompilable(own: UserCode, error: Exception) -> InputError:
    """The message of the compiler in one line, with the line of the file that it refers to."""
    text = str(error)
    lines = re.findall(rf'File "[^"]*{re.escape(Path(own.path).name)}", line (\d+)', text)
    undefined = re.search(r"name '(\w+)' is not defined", text)  # for these the compiler does not report the line
    if undefined:
        lines += [node.lineno for node in ast.walk(own.tree) if isinstance(node, ast.Name) and node.id == undefined[1]]
    where = f"{own.path}:{lines[-1]}" if lines else own.where
    return InputError(
        f"{own.name} cannot be compiled: {_gist(text)}",
        where=where,
        hint="use numbers, fields of the records, math, NumPy on arrays and functions of the same file; a class may do anything, slowly",
    )


def _gist(text: str) -> str:
    """The most informative line of a compiler message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(Unknown attribute|Untyped global|NameError|No implementation|Cannot |Invalid )", line)]
    chosen = telling[0] if telling else next((line for line in lines if not line.startswith("Failed in")), "no further message")
    return chosen if len(chosen) <= 200 else chosen[:200] + " …"


def _place(error: BaseException, file: str) -> str | None:
    """FILE:LINE of the innermost line of the file in the traceback."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
