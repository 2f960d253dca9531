"""Errors of folders of models.

FlourError (flour.core.errors)
└── RepositoryError      something is wrong with a folder of models
    ├── NoFolder             the folder is not there, or cannot be read
    ├── BadConfig            a configuration file is damaged or invalid
    ├── UnsupportedModel     this kind of model, or this setting of it, is not supported
    ├── Untrusted            a pickle's original is asked for, and its author is not trusted
    ├── UnsafePath           a path leads out of the folder, or is not a regular file
    ├── NotSettled           a file changes while it is read
    ├── NoRoom               this machine has too little disk space or memory at the moment
    ├── Crashed              the process that prepared a model has ended
    ├── NotLoaded            a model that was requested by name cannot be loaded
    └── UnknownModel         the folder has no model of this name (also an UnknownEndpoint)
"""

from __future__ import annotations

from flour.core.errors import FlourError
from runtime.errors import BadRegistration, UnknownEndpoint


class RepositoryError(FlourError):
    """Something is wrong with a folder of models."""


class NoFolder(RepositoryError):
    """The folder is not there, or cannot be read."""


class BadConfig(RepositoryError):
    """A configuration file is damaged or invalid."""


class UnsupportedModel(RepositoryError):
    """A kind of model, or a setting of it, that is not supported."""


class Untrusted(RepositoryError):
    """The estimator itself is asked for, which runs code of an author who is not trusted."""


class UnsafePath(RepositoryError):
    """A path leads out of the folder, or is not a regular file."""


class NotSettled(RepositoryError):
    """A file changes while it is read; it will be tried again."""


class NoRoom(RepositoryError):
    """A full disk, or too little memory: passing, and not about the model."""


class Crashed(RepositoryError):
    """The process that prepared a model has ended, or took too long."""


class NotLoaded(RepositoryError, BadRegistration):
    """A model that was requested by name cannot be loaded."""


class UnknownModel(RepositoryError, UnknownEndpoint):
    """The folder has no model of this name."""
