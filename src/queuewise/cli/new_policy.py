"""`queuewise new-policy`: create a template for a policy, with a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class NewPolicy:
    """Create NAME.py, a working policy with comments, and test_NAME.py. Existing files are never overwritten."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Lower-case letters, digits and _, e.g. my_policy."""
    folder: Annotated[str, tyro.conf.arg(metavar="DIR")] = "."
    """Folder for the files; created if necessary."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.policies.starter import make_starter
        from queuewise.runs import create_folder, write_text

        starter = make_starter(self.name)
        folder = Path(self.folder)
        policy, test = folder / starter.policy_file, folder / starter.test_file
        for path in (policy, test):
            if path.exists():
                raise InputError("already exists", where=str(path), hint="choose another name or another --folder")
        create_folder(folder)
        write_text(policy, starter.policy)
        write_text(test, starter.test)
        print(policy)
        print(test)
        note(f"try it: queuewise simulate --workload bench --jobs 20000 --cluster 16x8:V100-16 --policy {policy}:{self.name} --policy sjf")
        note(f"test it: python -m pytest {test}")
