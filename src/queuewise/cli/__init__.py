"""The `queuewise` command: find the subcommand, parse its arguments, then import and run it.

A subcommand is one file in this package with a frozen dataclass whose fields are its arguments (or a union of such
classes for a command with subcommands of its own) and whose `run()` does the work and returns an exit code or None for 0,
and one line in `COMMANDS`. Files import only the standard library and tyro at their head; everything heavy is imported inside
`run`, so that help is instant. Data goes to stdout, everything else to stderr.

Exit codes: 0 done, 1 an error of Queuewise's own, 2 something in the arguments or the input is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from queuewise.errors import QueuewiseError, unknown_name


@dataclass(frozen=True)
class Command:
    home: str  # "module:class" inside this package
    summary: str


COMMANDS: dict[str, Command] = {
    "simulate": Command("simulate:Simulate", "replay a workload on a cluster under one or more policies"),
    "evaluate": Command("evaluate:Evaluate", "measure policies on the same windows of a workload, with intervals"),
    "train": Command("train:Train", "train a policy for a workload and judge it on windows it has not seen"),
    "plot": Command("plot:Plot", "draw learning curves of training runs, with bands over seeds"),
    "diagnose": Command("diagnose:Diagnose", "look into a trained network: values, actions, units, gradients"),
    "bench-nets": Command("bench_nets:BenchNets", "measure networks of several sizes: parameters, latency, frames a second"),
    "export": Command("export:Export", "write a trained network as an ONNX file"),
    "compare": Command("compare:Compare", "put the policies of several run folders into one table"),
    "report": Command("report:Report", "write report.html, figures and tables of a run folder"),
    "policies": Command("policies:Policies", "list orders, backfill and placement rules, from which policies are made"),
    "new-policy": Command("new_policy:NewPolicy", "write a policy of your own to begin with, and a test of it"),
    "workload": Command("workload:WorkloadCommand", "look at logs, convert them, fetch public ones"),
    "clusters": Command("clusters:Clusters", "list the clusters that come with Queuewise"),
    "bench": Command("bench:Bench", "measure how fast the engine is on this machine"),
}

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never shows a traceback for an error the user can mend."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except QueuewiseError as error:
        return _report(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has seen enough, as in `queuewise policies | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from queuewise import __version__

        print(f"queuewise {__version__}")
        return 0
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    return _parse(name, rest).run() or 0


def _parse(name: str, arguments: Sequence[str]) -> Any:
    """The command's dataclass, filled from the arguments. tyro prints help itself and exits."""
    import tyro

    from queuewise.cli.usage import usage_errors

    module, _, cls = COMMANDS[name].home.partition(":")
    target = getattr(import_module(f"{__name__}.{module}"), cls)
    prog = f"queuewise {name}"
    with usage_errors(target, prog, arguments):
        if hasattr(target, "parse"):  # its defaults depend on some of its arguments
            return target.parse(arguments, prog)
        return tyro.cli(target, prog=prog, args=arguments)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: queuewise COMMAND [OPTIONS]", "", *lines, "", "queuewise COMMAND --help describes a command."])


def _report(error: QueuewiseError) -> int:
    print(f"error: {f'{error.where}: ' if error.where else ''}{error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code
