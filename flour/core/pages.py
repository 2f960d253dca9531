"""Addresses of the documentation, as messages name them: an installed package has no pages."""

from __future__ import annotations

#: The documentation's address in pyproject.toml; a test holds one against the other.
BASE = "https://pretzel-runtime.readthedocs.io/"


def page(name: str, title: str = "") -> str:
    """Return the address of a page, such as "reference/settings", and of a title on it."""
    return f"{BASE}{name}.html" + (f"#{title}" if title else "")
