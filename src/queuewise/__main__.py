"""The `queuewise` command, which `python -m queuewise` is as well."""

import sys


def main() -> int:
    """Run the command that the arguments name. Ctrl-C is reported in one line even while modules are still being imported."""
    try:
        from queuewise.cli import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
