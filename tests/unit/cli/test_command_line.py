"""How the command speaks: help at once, data on stdout, one-line errors with a hint and an exit code, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import queuewise
from queuewise import cli
from queuewise.cli import COMMANDS, Command, main
from queuewise.cli.console import print_table
from queuewise.errors import QueuewiseError
from queuewise.report.readable import duration, figure

HEAVY = ("numba", "polars", "torch", "matplotlib", "sklearn", "scipy", "numpy", "pydantic")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "queuewise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


PROBE = """
import sys
from queuewise.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    return set(subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True).stderr.split())


def test_help_answers_within_half_a_second() -> None:
    before = os.times()
    run("--help")
    after = os.times()  # of the processor: other programs may be using the machine
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.5


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for name, command in COMMANDS.items():
        assert name in done.stdout
        assert command.summary in done.stdout
    assert not imported_by("--help") & {*HEAVY, "tyro"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_every_command_works_and_imports_nothing_heavy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"queuewise {name}" in capsys.readouterr().out
    made_from_settings = {"pydantic"} if name == "train" else set()
    assert not imported_by(name, "--help") & set(HEAVY) - made_from_settings


@pytest.mark.parametrize("name", ["simulate", "evaluate"])
def test_help_shows_all_parts_of_a_policys_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert "order[+backfill[/depth][:order]][~bound][@placement]" in "".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_long_name_in_a_table_leaves_room_for_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["policy", "mean wait", "p99"], [["fcfs", "1.0 h", "2.0 h"], ["x" * 300, "12.3 h", "45.6 h"]])
    out = capsys.readouterr().out
    assert "12.3 h" in out
    assert "45.6 h" in out
    assert out.count("x") == 300


def test_without_a_command_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: queuewise" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"queuewise {queuewise.__version__}\n"


def test_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulat"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: unknown command 'simulat'\nhint: did you mean 'simulate'? ")


USAGE = {  # what is typed -> error and hint
    "clusters --jsn": ("queuewise clusters list has no option --jsn", "did you mean --json? see queuewise clusters list --help"),
    "clusters from-lg a": (
        "queuewise clusters has no subcommand 'from-lg'", "did you mean 'from-log'? one of list, from-log, from-slurm"
    ),
    "clusters from-log a": ("--out FILE.toml is missing", "see queuewise clusters from-log --help"),
    "simulate --polcy=fcfs": ("queuewise simulate has no option --polcy", "did you mean --policy? see queuewise simulate --help"),
    "workload info a --formt swf": (
        "queuewise workload info has no option --formt", "did you mean --format? see queuewise workload info --help"
    ),
    "simulate a": ("unexpected argument 'a'", "write --workload a; see queuewise simulate --help"),
    "simulate --policy fcfs": ("--workload FILE|MODEL is missing", "see queuewise simulate --help"),
    "workload info": ("FILE|MODEL is missing", "see queuewise workload info --help"),
    "workload inf a": (
        "queuewise workload has no subcommand 'inf'", "did you mean 'info'? one of info, convert, generate, fit, download"
    ),
    "workload": (
        "queuewise workload needs a subcommand", "one of info, convert, generate, fit, download; see queuewise workload --help"
    ),
    "simulate --workload a --policy fcfs --jobs": ("--jobs needs a value", "see queuewise simulate --help"),
    "simulate --workload a --policy fcfs --jobs ten": ("--jobs 'ten' is not a whole number", "see queuewise simulate --help"),
    "simulate --workload bursty --policy fcfs --cluster 2x2:V100-16 --kinds ignore": (
        "bursty is a model, whose jobs name no GPU kinds: --kinds ignore cannot be used",
        "omit it",
    ),
    "train --frames -1": ("frames = -1: must be at least 1", "see queuewise train --help"),
    "train --ppo.gamma 7": ("gamma = 7.0: must be at most 1", "see queuewise train --help"),
    "train --frames many": ("--frames 'many' is not a whole number", "see queuewise train --help"),
    "simulate --workload a --policy fcfs --seed 1.5": ("--seed '1.5' is not a whole number", "see queuewise simulate --help"),
    "evaluate --workload a --policy fcfs --warmup lots": ("--warmup 'lots' is not a number", "see queuewise evaluate --help"),
    "simulate --workload a --policy fcfs --dispatch reordr": (
        "--dispatch cannot be 'reordr'", "did you mean 'reorder'? one of reorder, commit"
    ),
    "simulate --workload a": ("no policy given", "add --policy fcfs; repeat --policy to compare several"),
}  # fmt: skip


@pytest.mark.parametrize("typed", USAGE)
def test_usage_errors_are_one_line_and_a_hint(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    error, hint = USAGE[typed]
    assert capsys.readouterr() == ("", f"error: {error}\nhint: {hint}\n")


class Failing:
    """A command that fails as `raising` says."""

    raising: BaseException

    def run(self) -> None:
        raise self.raising


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    monkeypatch.setitem(COMMANDS, "failing", Command("failing:Failing", "fails"))
    monkeypatch.setattr(cli, "_parse", lambda name, arguments: Failing())
    return Failing


def test_error_prints_place_message_and_hint_and_gives_its_exit_code(failing: type[Failing], capsys: pytest.CaptureFixture[str]) -> None:
    failing.raising = QueuewiseError("went wrong", where="a.swf:3", hint="mend it")
    assert main(["failing"]) == 1
    assert capsys.readouterr() == ("", "error: a.swf:3: went wrong\nhint: mend it\n")


def test_interrupt_gives_130(failing: type[Failing], capsys: pytest.CaptureFixture[str]) -> None:
    failing.raising = KeyboardInterrupt()
    assert main(["failing"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_bugs_are_not_hidden(failing: type[Failing]) -> None:
    failing.raising = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main(["failing"])


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m queuewise clusters --json | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[0\n"
    assert "Traceback" not in done.stderr


def test_clusters_lists_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["philly"]["nodes"], rows["philly"]["gpus"], rows["philly"]["cores"]) == (552, 2490, None)
    assert main(["clusters"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*rows, "flat:N", "NxM:kind"))


def test_no_colour_codes_when_asked_or_piped() -> None:
    assert "\x1b[" not in run("clusters").stdout
    assert "\x1b[" not in run("clusters", NO_COLOR="1", FORCE_COLOR="").stdout


def test_durations_and_figures_for_the_eye() -> None:
    assert [duration(s) for s in (0, 119.94, 120, 7200, 172800, None, float("nan"))] == [
        "0.0 s",
        "119.9 s",
        "2.0 min",
        "2.0 h",
        "2.0 d",
        "–",
        "–",
    ]
    assert [figure(v, 1) for v in (1234.56, 0, None, float("nan"))] == ["1,234.6", "0.0", "–", "–"]


def test_python_names_of_the_package_are_lazy_and_real() -> None:
    code = "import queuewise, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in loaded if name.startswith("queuewise")} == {"queuewise", "queuewise.prefixes"}  # the registry alone
    assert not {"numpy", "numba", "polars", "torch", "gymnasium", "dataclasses"} & set(loaded)
    assert set(queuewise.__all__) <= set(dir(queuewise))
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = queuewise.simulat


def test_console_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("queuewise")
    assert subprocess.run([str(script), "--help"], capture_output=True, text=True, check=True).stdout == run("--help").stdout


def test_policies_lists_all_registries(capsys: pytest.CaptureFixture[str]) -> None:
    from queuewise.policies import policy_names
    from queuewise.policies.backfill import BACKFILLS
    from queuewise.policies.placing import PLACEMENTS, SOLVED_PLACEMENTS

    assert main(["policies", "--json"]) == 0
    listed = {part: [row["name"] for row in rows] for part, rows in json.loads(capsys.readouterr().out).items()}
    assert [*listed.pop("orders"), *listed.pop("preemptive")] == list(policy_names())
    assert listed == {"backfills": list(BACKFILLS), "placements": [*PLACEMENTS, *SOLVED_PLACEMENTS]}
    assert main(["policies"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*policy_names(), *BACKFILLS, *PLACEMENTS, *SOLVED_PLACEMENTS))
