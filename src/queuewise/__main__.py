"""`python -m queuewise` is the `queuewise` command."""

from queuewise.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
