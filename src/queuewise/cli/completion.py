"""`queuewise completion bash|zsh`: a script that completes commands, options and names in a shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

import tyro

SCRIPT = """\
# Completion of queuewise. bash: source <(queuewise completion bash)   zsh: source <(queuewise completion zsh)
{start}_queuewise() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" choices=""
    case "$before" in
{values}
        *)
            if [ "$COMP_CWORD" = 1 ]; then
                choices="{commands}"
            else
                case "${{COMP_WORDS[1]}}" in
{options}
                esac
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    case "$word" in -*) ;; *) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F _queuewise queuewise
"""


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands, options and names: source <(queuewise completion bash)"""

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]
    """The shell to complete in."""

    def run(self) -> None:
        print(script(self.shell))


def script(shell: str) -> str:
    from queuewise.cli import COMMANDS

    options = [f'                    {name}) choices="{" ".join(words)}" ;;' for name in COMMANDS if (words := list(_words(name)))]
    values = [f'        {flag}) choices="{" ".join(names)}" ;;' for flag, names in _names().items()]
    start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return SCRIPT.format(start=start, values="\n".join(values), commands=" ".join(COMMANDS), options="\n".join(options))


def _words(name: str) -> Iterator[str]:
    """What may follow a command: its subcommands, and the options of all of them."""
    from queuewise.cli import COMMANDS
    from queuewise.cli.usage import option_names, subcommand_classes

    module, _, cls = COMMANDS[name].home.partition(":")
    target = getattr(import_module(f"queuewise.cli.{module}"), cls)
    below = subcommand_classes(target)
    yield from below
    found = [option for one in below.values() or [target] for option in option_names(one)]
    yield from dict.fromkeys(f"--{option}" for option in [*found, "help"])


def _names() -> dict[str, list[str]]:
    """Values of options that have names."""
    from queuewise.agents.train_settings import ALGORITHMS
    from queuewise.agents.train_settings import preset_names as train_presets
    from queuewise.cluster import preset_names
    from queuewise.policies import policy_names
    from queuewise.workload.models import MODELS

    return {
        "--policy": [*policy_names(), "wise"],
        "--cluster": preset_names(),
        "--workload": list(MODELS),
        "--preset": list(train_presets()),
        "--algo": list(ALGORITHMS),
        "completion": ["bash", "zsh"],
    }
