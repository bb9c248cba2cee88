"""`python -m tests.lab`: see cli.py."""

from tests.lab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
