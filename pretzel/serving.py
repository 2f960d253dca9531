"""Models over HTTP from Python: `pretzel.serve`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeAlias

from flour.language.flow import Flow
from oven import Plan
from pretzel.model import Model
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.repository import Event, Repository

log = logging.getLogger("pretzel")
Models: TypeAlias = Mapping[str, Model | Plan | Flow] | str | Path
"""Models by name, or a folder of models."""

#: Seconds between two looks at a folder of models.
POLL_SECONDS = 2.0


class Serving:
    """Models that are served, until `close` or the end of a `with` block."""

    def __init__(self, models: Models, **settings: Any) -> None:
        """Register the models, or load the folder, and listen."""
        with ExitStack() as stack:
            self.runtime = stack.enter_context(Runtime())
            repository = None
            if isinstance(models, Mapping):
                for name, model in models.items():
                    self.runtime.register(name, model.plan if isinstance(model, Model) else model)
            else:
                repository = stack.enter_context(Repository(models, self.runtime, on_event=_tell))
                repository.load_all()
                repository.watch(POLL_SECONDS)
            self._server = Server(self.runtime, ServerSettings(**settings), repository=repository)
            stack.enter_context(self._server)
            self._held = stack.pop_all()

    @property
    def url(self) -> str:
        """The address for clients."""
        return self._server.url

    def wait(self) -> None:
        """Serve until this is interrupted, such as by Ctrl-C, and then close."""
        from runtime.cli.serving import until_signal

        with self, until_signal() as ended:
            ended.wait()

    def close(self) -> None:
        """Finish the requests in progress and end."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tell(event: Event) -> None:
    if event.kind == "refused":
        log.warning("%s", event)


def serve(models: Models, **settings: Any) -> Serving:
    """Serve models by name, or a folder of models, over HTTP.

    >>> with pretzel.serve({"churn": model}, port=0) as server:
    ...     print(server.url)

    The settings are those of `ServerSettings`. A folder is followed: models that appear in it, or
    change, are loaded under traffic. Outside a `with` block, `wait` keeps the program running.
    """
    return Serving(models, **settings)
