"""A folder of models, kept in service: our own layout, MLServer's and Triton's.

with Runtime() as runtime, Repository("models", runtime) as models:
    models.load_all()
    models.watch(seconds=2.0)
"""

from __future__ import annotations

from runtime.http.interfaces import ModelState
from runtime.repository.errors import RepositoryError
from runtime.repository.listing import Model, Scan, Trouble
from runtime.repository.repository import Event, Repository

__all__ = ["Event", "Model", "ModelState", "Repository", "RepositoryError", "Scan", "Trouble"]
