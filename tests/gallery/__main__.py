"""`python -m tests.gallery DIR`: see __init__.py."""

import sys

import conftest  # noqa: F401  makes the collection importable under its own name
from tests.gallery import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
