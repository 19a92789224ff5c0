"""How the command speaks: help at once, data on stdout, one-line errors with a hint and an exit code, no traceback."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import queuewise
from queuewise import cli
from queuewise.cli import COMMANDS, Command, main
from queuewise.cli.console import print_table
from queuewise.cli.usage import option_names, subcommand_classes
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
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not imported_by("--help") & {*HEAVY, "tyro"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_every_command_works_and_imports_nothing_heavy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"queuewise {name}" in capsys.readouterr().out
    made_from_settings = {"pydantic"} if name == "train" else set()
    assert not imported_by(name, "--help") & set(HEAVY) - made_from_settings


def classes_of(name: str) -> dict[str, Any]:
    """What the words of a command stand for: the command itself, or its subcommands."""
    module, _, cls = COMMANDS[name].home.partition(":")
    command = getattr(import_module(f"queuewise.cli.{module}"), cls)
    below = {f"{name} {word}": one for word, one in subcommand_classes(command).items()}
    return below or {name: command}


@pytest.mark.parametrize("words", [words for name in COMMANDS for words in classes_of(name)])
def test_help_has_every_option_in_plain_words(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The options that errors and the completion know are those of the help. It does not speak of None, and no line breaks off early."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    text = capsys.readouterr().out
    shown = set(re.findall(r"^[│ ] (?:-h, )?--([a-z][\w.-]*)", text, re.MULTILINE))
    assert shown == {*option_names(classes_of(words.partition(" ")[0])[words]), "help"}
    assert not [line for line in text.splitlines() if "None" in line or "(default: )" in line]
    assert max(len(line) for line in text.splitlines() if line.startswith((" ", "│"))) <= 80


def test_a_paragraph_of_help_is_wrapped_as_a_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No line ends where the next word would have fitted."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    lines = [line.replace("│", " ").rstrip() for line in capsys.readouterr().out.splitlines()]
    column = next(line for line in lines if "--dispatch" not in line and "reorder: sort" in line).index("reorder")
    pairs = [(line, word) for line, word in itertools.pairwise(lines) if line[column - 2 : column].isspace() and line[column:]]
    continued = [(line, word.split()[0]) for line, word in pairs if word[column:] and not word[:column].strip()]
    assert len(continued) > 20
    assert [line for line, word in continued if len(line) + 1 + len(word) <= 78] == []


def test_help_of_a_command_may_be_asked_for_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", "size"])
    assert "--target TARGET" in capsys.readouterr().out


def test_training_shows_its_phase_before_heavy_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is refused after them leaves no folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--workload", "nolog.swf"]) == 2
    assert capsys.readouterr().err.startswith("loading PyTorch …\n")
    assert not any(tmp_path.iterdir())


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
    "workload convert a.swf b.csv": ("unexpected argument 'b.csv'", "write --out b.csv; see queuewise workload convert --help"),
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
    "train --fraems 5": ("queuewise train has no option --fraems", "did you mean --frames? see queuewise train --help"),
    "train --ppo.gama 1": ("queuewise train has no option --ppo.gama", "did you mean --ppo.gamma? see queuewise train --help"),
    "simulate --workload a --policy fcfs --processors most": ("--processors cannot be 'most'", "one of requested, allocated"),
    "train --frames many": ("--frames 'many' is not a whole number", "see queuewise train --help"),
    "simulate --workload a --policy fcfs --seed 1.5": ("--seed '1.5' is not a whole number", "see queuewise simulate --help"),
    "evaluate --workload a --policy fcfs --warmup lots": ("--warmup 'lots' is not a number", "see queuewise evaluate --help"),
    "simulate --workload a --policy fcfs --dispatch reordr": (
        "--dispatch cannot be 'reordr'", "did you mean 'reorder'? one of reorder, commit"
    ),
    "simulate --workload a --policy fcfs --out=": (
        "--out is empty", "give it a value, or leave it out; see queuewise simulate --help"
    ),
    "bench-nets --seconds nan": (
        "sizes must be at least 1, and --seconds from 0 to 3600", "for example --widths 64 128 --window 64"
    ),
    "bench-nets --depth 999999": ("--widths are at most 65,536, and --depth is at most 256", "use smaller ones"),
    "bench-nets --hosts 9999999": ("--window, --hosts and --gpus are at most 100,000", "use smaller ones"),
    "train --network.width 99999999": ("width = 99999999: must be at most 65536", "see queuewise train --help"),
    "serve --policy fcfs --max-wait x": (
        "--max-wait: 'x' is not a time", "write a number above 0 with s, m, h or d, for example 3d"
    ),
    "lsf advise --socket s --interval nan": ("--interval nan", "give seconds above 0"),
    "lsf esub --grace 86401": ("--grace 86401", "give 60 to 86,400 s: LSF counts begin times in minutes"),
    "slurm --once --deadline inf": ("--deadline inf", "give seconds above 0 and up to 3600"),
    "slurm when 7 --draws 1000001": ("--draws 1000001 is not between 1 and 1,000,000", "leave it out for the default"),
    "simulate --workload a": ("no policy given", "add --policy fcfs; repeat --policy to compare several"),
}  # fmt: skip


@pytest.mark.parametrize("typed", USAGE)
def test_usage_errors_are_one_line_and_a_hint(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    error, hint = USAGE[typed]
    assert capsys.readouterr() == ("", f"error: {error}\nhint: {hint}\n")


@pytest.mark.parametrize("option", ["--plot", "--cluster", "--policy"])
def test_an_option_that_is_empty_is_not_left_out(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "bursty", "--target", "mean wait < 1h", option, ""]) == 2
    assert capsys.readouterr().err.startswith(f"error: {option} is empty\nhint: give it a value, or leave it out")


def test_a_folder_that_was_removed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = f"cd gone && rmdir ../gone && {sys.executable} -m queuewise policies"
    done = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-2:] == ["error: the current folder was removed", "hint: change to a folder that exists"]


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


def test_what_torch_says_of_memory_is_one_line(failing: type[Failing], capsys: pytest.CaptureFixture[str]) -> None:
    failing.raising = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")
    assert main(["failing"]) == 2
    assert capsys.readouterr().err.startswith("error: out of memory\nhint: ")


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


def test_parts_of_the_engine_that_are_compiled_later_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` needs limits and plans, which the first replay of a newcomer does not compile."""
    from numba.core import event

    from queuewise.cli.console import LATER_PARTS, announce_compilation
    from queuewise.sim.core import loop

    announce_compilation()
    capsys.readouterr()
    for name, what in LATER_PARTS.items():
        with event.trigger_event("numba:compile", data={"dispatcher": getattr(loop, name)}):
            pass
        assert f"compiling the engine's part for {what} (once, about " in capsys.readouterr().err
    with event.trigger_event("numba:compile", data={"dispatcher": loop.replay_plain}):
        pass
    assert capsys.readouterr().err == ""
