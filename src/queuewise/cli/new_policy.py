"""`queuewise new-policy`: write a policy of one's own to begin with, and a test of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class NewPolicy:
    """Write NAME.py, a commented policy that works, and test_NAME.py beside it. Files that exist are never overwritten."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Small letters, digits and _, for example my_policy."""
    folder: Annotated[str, tyro.conf.arg(metavar="DIR")] = "."
    """Where the files go; it is made if need be."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.errors import InputError
        from queuewise.policies.starter import make_starter
        from queuewise.runs import write_text

        starter = make_starter(self.name)
        folder = Path(self.folder)
        policy, test = folder / starter.policy_file, folder / starter.test_file
        for path in (policy, test):
            if path.exists():
                raise InputError("exists already", where=str(path), hint="choose another name, or another --folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(policy, starter.policy)
            write_text(test, starter.test)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(folder), hint="choose another --folder") from None
        print(policy)
        print(test)
        note(f"try it: queuewise simulate --workload bench --jobs 20000 --cluster 16x8:V100-16 --policy {policy}:{self.name} --policy sjf")
        note(f"test it: python -m pytest {test}")
