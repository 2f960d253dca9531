"""Errors of the command line, and exit codes.

FlourError (flour.core.errors)
└── CommandError        what was asked for cannot be done as it was asked
    ├── ArgumentError       an argument's value is not what the command takes
    ├── BadTable            rows in a file are not what the model takes (also an InputError)
    ├── NotInstalled        an optional library is not there
    └── NotFound            there is no such file, or no model in it
"""

from __future__ import annotations

from enum import IntEnum

from flour.core.errors import FlourError, InputError


class Exit(IntEnum):
    """Exit codes; docs/reference/command-line.md has the table."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNFAITHFUL = 3
    NOT_INSTALLED = 4
    FILES = 5
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class CommandError(FlourError):
    """The command cannot be executed as given."""


class ArgumentError(CommandError):
    """An argument's value is not what the command takes."""


class BadTable(CommandError, InputError):
    """Rows in a file do not fit the model."""


class NotInstalled(CommandError):
    """An optional library is not installed."""


class NotFound(CommandError):
    """There is no such file, or no model in it."""
