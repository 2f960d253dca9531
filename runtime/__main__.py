"""`python -m runtime` is `pretzel`."""

from __future__ import annotations

from runtime.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
