"""The `queuewise` command: find the subcommand, parse its arguments, then import and run it.

A subcommand is one file in this package and one line in `COMMANDS`. The file has a frozen dataclass whose fields are the arguments (or a
union of such classes for a command with its own subcommands). Its `run()` returns an exit code, or None for 0. At module level, files
import only the standard library and tyro; everything heavy is imported inside `run`, which keeps `--help` fast. Data goes to stdout,
everything else to stderr.

Exit codes: 0 success, 1 an internal error, 2 invalid arguments or input, 3 most jobs were rejected, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from itertools import zip_longest
from typing import Any

from queuewise.cli.console import discard, note
from queuewise.cli.interrupts import INTERRUPTED, ending_soon
from queuewise.errors import InputError, QueuewiseError, unknown_name
from queuewise.plain_text import printable
from queuewise.runs import remove_empty_folders


@dataclass(frozen=True)
class Command:
    home: str  # "module:class" inside this package
    summary: str
    default: str = ""  # the subcommand that is meant if none is named


COMMANDS: dict[str, Command] = {
    "simulate": Command("simulate:Simulate", "replay a workload on a cluster under one or more policies"),
    "validate": Command("validate:Validate", "replay a log and compare the waits with those that it records"),
    "learn": Command("learn:Learn", "find a policy that is better on later days of a log, if any is"),
    "suite": Command("suite:Suite", "rank policies on a fixed set of tasks"),
    "predict": Command("predict:Predict", "predict the runtimes of a log, and judge that on later days"),
    "optimise": Command("optimise:Optimise", "place a waiting job of a snapshot exactly, beside what rules do"),
    "evaluate": Command("evaluate:Evaluate", "compare policies on the same days or windows, with intervals"),
    "size": Command("size:Size", "find the number of nodes that a target for waits needs"),
    "train": Command("train:Train", "train a policy, and evaluate it on windows it has not seen"),
    "plot": Command("plot:Plot", "plot the learning curves of training runs, with bands over seeds"),
    "diagnose": Command("diagnose:Diagnose", "inspect a trained network: values, actions, units, gradients"),
    "bench-nets": Command("bench_nets:BenchNets", "measure networks of several sizes: parameters and speed"),
    "export": Command("export:Export", "write a trained network as an ONNX file"),
    "compare": Command("compare:Compare", "compare the policies of several run folders in one table"),
    "report": Command("report:Report", "write report.html, figures and tables for a run folder"),
    "policies": Command("policies:Policies", "list the orders and rules that make up the name of a policy"),
    "new-policy": Command("new_policy:NewPolicy", "create a template for your own policy, with a test"),
    "workload": Command("workload:WorkloadCommand", "inspect, convert and download logs; generate and fit models"),
    "clusters": Command("clusters:Clusters", "list the included clusters; describe that of a log or of Slurm", "list"),
    "serve": Command("serve:Serve", "answer decisions over HTTP on a unix socket or loopback"),
    "slurm": Command("slurm:SlurmCommand", "steer a Slurm cluster, or say when and why not its jobs start", "run"),
    "lsf": Command("lsf:LsfCommand", "steer an LSF cluster, and build the plugin of its scheduler", "run"),
    "live": Command("live:Live", "turn agents and services off, replay their audit log"),
    "bench": Command("bench:Bench", "measure the speed of the engine on this machine"),
    "doctor": Command("doctor:Doctor", "say what is installed, what is missing and how to get it"),
    "completion": Command("completion:Completion", "print a script that completes commands in bash or zsh"),
}

MAY_BE_EMPTY = ("--reason",)
LONGEST_MESSAGE = 2000  # characters of an error or a hint
_RIGHTS, _SPACE = "check the permissions of the file and of the folders above it", "free some space, or choose another folder"
SYSTEM_ERRORS = {  # what is wrong with the machine or with a path, not with this program -> hint
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "choose a folder that can be written",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: _SPACE,
    errno.EIO: "check the disk",
    errno.ESTALE: "the folder's server has lost it; try again",
    errno.ETIMEDOUT: "the folder's server does not answer; try again",
    errno.ENOLCK: "check the folder's server",
    errno.ENOEXEC: "check the program in PATH",
    errno.ENOMEM: "use fewer jobs (--jobs), or a machine with more memory",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "a file is expected there; remove the folder, or make the run again",
    errno.ELOOP: "check the links in the path",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. An error that the user can fix is shown without a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    try:
        code = _dispatch(arguments, alone=argv is None)
        sys.stdout.flush()  # while an error can still be reported
        return code
    except QueuewiseError as error:
        return _report(error)
    except KeyboardInterrupt:
        note("interrupted")
        return INTERRUPTED
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # as torch says it
            raise
        return _report(InputError("out of memory", hint="use a smaller network or fewer environments, or a machine with more memory"))
    except MemoryError as error:  # NumPy's says how much it needed
        hint = "use fewer jobs (--jobs), fewer policies at once, or a machine with more memory"
        return _report(InputError(f"out of memory{f': {error}' if str(error) else ''}", hint=hint))
    except BrokenPipeError:  # stdout was closed early, as in `queuewise policies | head`
        discard(sys.stdout)
        return 0
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            discard(sys.stdout)
        return _report(InputError(os.strerror(error.errno).lower(), where=str(error.filename or ""), hint=SYSTEM_ERRORS[error.errno]))


def _dispatch(arguments: list[str], *, alone: bool) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return 2
    name, *rest = arguments
    if name == "help" and rest:
        return _dispatch([*rest, "--help"], alone=alone)
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from queuewise import __version__

        print(f"queuewise {__version__}")
        return 0
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder was removed", hint="change to a folder that exists") from None
    command = _parse(name, rest)
    with ending_soon(alone=alone):
        return command.run() or 0


def _parse(name: str, arguments: Sequence[str]) -> Any:
    """Fill the command's dataclass from the arguments. tyro prints help and exits by itself."""
    import tyro

    from queuewise.cli.usage import usage_errors

    command = COMMANDS[name]
    if command.default and (not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help"))):
        arguments = [command.default, *arguments]
    module, _, cls = command.home.partition(":")
    target = getattr(import_module(f"{__name__}.{module}"), cls)
    prog = f"queuewise {name}"
    _refuse_empty(arguments, prog)
    with usage_errors(target, prog, arguments):
        if hasattr(target, "parse"):  # its defaults depend on other arguments
            return target.parse(arguments, prog)
        return tyro.cli(target, prog=prog, args=arguments)


def _refuse_empty(arguments: Sequence[str], prog: str) -> None:
    """An option without its value, as in `--out "$FOLDER"` where there is no FOLDER, would be as good as left out."""
    for argument, following in zip_longest(arguments, arguments[1:]):
        option, equals, value = argument.partition("=")
        if option.startswith("--") and option not in MAY_BE_EMPTY and (not value if equals else following == ""):
            raise InputError(f"{option} is empty", hint=f"give it a value, or leave it out; see {prog} --help")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: queuewise COMMAND [OPTIONS]", "", *lines, "", "Run queuewise COMMAND --help for details of a command."])


def _report(error: QueuewiseError) -> int:
    remove_empty_folders()  # a refused command leaves none
    note(_one_line(f"error: {f'{error.where}: ' if error.where else ''}{error.message}"))
    if error.hint:
        note(_one_line(f"hint: {error.hint}"))
    return error.exit_code


def _one_line(text: str) -> str:
    """What files and names contain may break lines or be of any length."""
    shown = printable("".join(" " if c.isspace() else c for c in text))
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]} …"
