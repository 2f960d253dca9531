"""What can go wrong between a caller and a plan.

    FlourError (flour.errors)
    ├── UnknownEndpoint   nothing is registered under this name or version (also a LookupError)
    ├── NotOffered        the program has no such output (also an AttributeError)
    └── Unfaithful        a served program does not answer as the original does
"""

from __future__ import annotations

from flour.errors import FlourError


class UnknownEndpoint(FlourError, LookupError):
    """Nothing is registered under this name or version."""


class NotOffered(FlourError, AttributeError):
    """The program has no such output."""


class Unfaithful(FlourError):
    """A served program does not answer as the original does, on rows the user gave."""
