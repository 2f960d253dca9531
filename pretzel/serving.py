"""Models over HTTP from Python: `pretzel.serve`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from flour.core.errors import check_names
from pretzel.model import Model, compile  # noqa: A004 (pretzel.compile)
from runtime import Runtime
from runtime.cli.serving import until_signal
from runtime.http import Server, ServerSettings
from runtime.repository import FolderEvent, Repository

log = logging.getLogger("pretzel")
Models: TypeAlias = Mapping[str, object] | str | Path
"""Models by name, whatever `pretzel.compile` takes; or a folder of models."""

#: Seconds between two looks at a folder of models.
POLL_SECONDS = 2.0


class Serving:
    """Models that are served, until `close` or the end of a `with` block."""

    def __init__(
        self,
        models: Models,
        settings: ServerSettings,
        *,
        trust_pickle: bool,
        allow_python: Sequence[str],
    ) -> None:
        """Register the models, or load the folder, and listen."""
        with ExitStack() as stack:
            self.runtime = stack.enter_context(Runtime(allow_python=allow_python))
            repository = None
            if isinstance(models, Mapping):
                for name, model in models.items():
                    self.runtime.register(name, _compiled(model, trust_pickle=trust_pickle).plan)
            else:
                repository = Repository(
                    *(models, self.runtime),
                    trust_pickle=trust_pickle,
                    allow_python=allow_python,
                    on_event=_tell,
                )
                stack.enter_context(repository).load_all()
                repository.watch(POLL_SECONDS)
            self._server = Server(self.runtime, settings, repository=repository)
            stack.enter_context(self._server)
            self._held = stack.pop_all()

    @property
    def url(self) -> str:
        """The address for clients."""
        return self._server.url

    def wait(self) -> None:
        """Serve until this is interrupted, such as by Ctrl-C, and then close."""
        server = self._server
        with self, until_signal(server.reload if server.settings.tls_cert else None) as ended:
            ended.wait()

    def close(self) -> None:
        """Finish the requests in progress and end."""
        self._held.close()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compiled(model: object, *, trust_pickle: bool) -> Model:
    return model if isinstance(model, Model) else compile(model, trust_pickle=trust_pickle)


def _tell(event: FolderEvent) -> None:
    if event.kind == "refused":
        log.warning("%s@%s is not served: %s", event.name, event.version, event.reason)


def serve(
    models: Models, *, trust_pickle: bool = False, allow_python: Sequence[str] = (), **settings: Any
) -> Serving:
    """Serve models by name, or a folder of models, over HTTP.

    >>> with pretzel.serve({"churn": model}, port=0) as server:
    ...     print(server.url)

    The settings are those of `ServerSettings`. A folder is followed: models that appear in it, or
    change, are loaded under traffic; graphs in it have coroutines from the modules `allow_python`.
    Pickles are read as data; with `trust_pickle`, those that are refused so are unpickled. Outside
    a `with` block, `wait` keeps the program running.
    """
    check_names("pretzel.serve", ServerSettings, settings)
    made = ServerSettings(**settings)
    return Serving(models, made, trust_pickle=trust_pickle, allow_python=allow_python)
