"""The `queuewise` command, which `python -m queuewise` is as well."""

import os
import sys


def main() -> int:
    """Run the command that the arguments name. Ctrl-C is reported in one line even while modules are still being imported."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before Python started
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (it stays open)
    try:
        from queuewise.cli import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
