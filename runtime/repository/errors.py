"""What can go wrong between a folder and the endpoints it stands for.

FlourError (flour.core.errors)
└── RepositoryError      something is wrong with a folder of models
    ├── NoFolder             the folder is not there, or cannot be read
    ├── BadConfig            a configuration file is not what it can be
    ├── UnsupportedModel     this kind of model, or this setting of it, is not supported
    ├── Untrusted            a pickle, and nobody said that it may be read
    ├── UnsafePath           a path leads out of the folder, or is no ordinary file
    ├── NotSettled           a file changes while it is read
    ├── NoRoom               this machine lacks what it takes to prepare a model, for now
    ├── Crashed              the process that prepared a model has ended
    ├── NotLoaded            a model that somebody asked for cannot be loaded
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
    """A configuration file is damaged, or says what cannot be."""


class UnsupportedModel(RepositoryError):
    """A kind of model, or a setting of it, that is not supported."""


class Untrusted(RepositoryError):
    """A pickle runs code when it is read, and nobody said that it may."""


class UnsafePath(RepositoryError):
    """A path leads out of the folder, or to something that is no ordinary file."""


class NotSettled(RepositoryError):
    """A file changes while it is read; it will be tried again."""


class NoRoom(RepositoryError):
    """A full disk, or too little memory: it says nothing about the model, and will be over."""


class Crashed(RepositoryError):
    """The process that prepared a model has ended, or took too long."""


class NotLoaded(RepositoryError, BadRegistration):
    """A model that somebody asked for by name cannot be loaded."""


class UnknownModel(RepositoryError, UnknownEndpoint):
    """The folder has no model of this name."""
