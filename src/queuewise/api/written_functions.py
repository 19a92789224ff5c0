"""A score function of a notebook or a script, as a file that policies can name.

Policies are names, so that they can be stored, compared and played by other processes. `write_function` copies the source of a function,
and of whatever it uses, to a file in the cache folder, and returns `FILE.py:NAME`. It takes over what compiled functions can use: modules,
numbers, and functions that are defined with def. The file is named after its content.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import numbers
import os
import re
import textwrap
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from queuewise.cache_folder import cache_folder
from queuewise.errors import InputError
from queuewise.policies.user_code import HOLD
from queuewise.runs import write_text

FOLDER = "functions"
DIGITS = 16  # of the digest that the folder of a function is called by
SETTINGS = ("PARAMS", "STATE_SIZE", "TIME_LIMIT_S")  # that a file with a function may have


def write_function(function: FunctionType, rest: str = "") -> str:
    """The name of a policy that sorts by this function. `rest` is what follows in the name, for example "+easy~3d"."""
    parts: dict[str, str] = {}
    for name in SETTINGS:
        if name in function.__globals__:
            parts[name] = f"{name} = {_setting(function.__globals__[name])!r}"
    _refuse_defaults(function)
    _collect(function, parts)
    hold = function.__globals__.get(function.__name__ + HOLD)
    if isinstance(hold, FunctionType):
        _collect(hold, parts)
    lines = ["from __future__ import annotations", *(text for text in parts.values())]
    text = "\n\n".join(lines) + "\n"
    home = cache_folder(FOLDER) / hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    file = home / f"{function.__name__}.py"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return f"{file}:{function.__name__}{rest}"


def without_cache(name: str) -> str:
    """The name of a policy with the files of functions named as in any folder: thrifty.py:thrifty+easy."""
    return re.sub(re.escape(f"{cache_folder(FOLDER)}{os.sep}") + rf"[0-9a-f]{{{DIGITS}}}{re.escape(os.sep)}", "", name)


def label_of(name: str) -> str:
    """The name of a policy with functions for the files that `write_function` wrote: thrifty+easy."""
    return re.sub(r"\w+\.py:(?=\w)", "", short) if (short := without_cache(name)) != name else name


def written_files(name: str) -> list[Path]:
    """The files of functions that the name of a policy refers to."""
    folder = cache_folder(FOLDER)
    return [Path(found) for found in re.findall(re.escape(f"{folder}{os.sep}") + r"[0-9a-f]+[^:]*?\.py(?=:)", name)]


def _setting(value: Any) -> Any:
    """As plain Python: PARAMS may be an array."""
    if isinstance(value, list | tuple):
        return [_setting(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _refuse_defaults(function: FunctionType) -> None:
    """The engine passes a score function all that it takes, so a default would never be used."""
    names = [*function.__code__.co_varnames[: function.__code__.co_argcount][-len(function.__defaults__ or ()) or None :]]
    if function.__defaults__ or function.__kwdefaults__:
        which = names[0] if function.__defaults__ else next(iter(function.__kwdefaults__ or {}))
        raise InputError(
            f"{function.__name__} has a default for {which}",
            hint=f"use PARAMS: write PARAMS = [1.0] beside it, def {function.__name__}(job, params), and params[0] for {which}",
        )


def _collect(function: FunctionType, parts: dict[str, str]) -> None:
    """Add the source of the function to `parts`, and that of all names that it uses before it."""
    name = function.__name__
    if name == "<lambda>":
        raise InputError("a lambda has no name that a policy could have", hint="write it with def: def my_score(job): return …")
    if function.__closure__:
        raise InputError(
            f"{name} uses {', '.join(function.__code__.co_freevars)} of the function around it",
            hint="define it at the top level, and keep numbers in constants there or in PARAMS",
        )
    if name in parts:
        return
    parts[name] = ""  # it may call itself
    for used in _names_in(function.__code__):
        if used in function.__globals__ and used not in parts:
            _add(used, function.__globals__[used], name, parts)
    source = parts.pop(name, "") or _source(function)
    parts[name] = source


def _add(used: str, value: Any, by: str, parts: dict[str, str]) -> None:
    value = getattr(value, "py_func", value)
    if isinstance(value, ModuleType):
        parts[used] = f"import {value.__name__} as {used}"
    elif isinstance(value, BuiltinFunctionType) and value.__module__:
        parts[used] = f"from {value.__module__} import {value.__name__} as {used}"
    elif isinstance(value, bool | numbers.Real):
        parts[used] = f"{used} = {value!r}" if isinstance(value, bool | int) else f"{used} = float({str(float(value))!r})"
    elif isinstance(value, FunctionType):
        if used != value.__name__:
            raise InputError(f"{by} calls {value.__name__} as {used}", hint=f"call it {value.__name__}")
        _collect(value, parts)
    else:
        raise InputError(
            f"{by} uses {used}, a {type(value).__name__}",
            hint="score functions are compiled: use numbers, modules and functions written with def, or write a class with decide",
        )


def _names_in(code: CodeType) -> list[str]:
    """The global names that the code reads, also in functions inside it. Names of attributes are no global names."""
    found = [str(step.argval) for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names_in(constant)
    return list(dict.fromkeys(found))


def _source(function: FunctionType) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        raise InputError(
            f"the source of {function.__name__} cannot be found",
            hint="write it to a file and pass 'FILE.py:NAME'; functions typed at Python's prompt have no source",
        ) from None
    lines = text.splitlines()
    while lines and lines[0].startswith("@"):  # decorators such as @njit: the engine compiles it
        lines.pop(0)
    return "\n".join(lines)
