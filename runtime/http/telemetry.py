"""What looks on while requests are answered, as the settings have it: counters, log, traces.

What is off is not there at all, so it costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.http.metrics import Metrics

if TYPE_CHECKING:
    from runtime.http.service import Service


def attach(service: Service) -> None:
    """Put the observers that the settings ask for into a service."""
    if service.settings.metrics:
        service.metrics = Metrics(service)


def finish(service: Service) -> None:
    """The service has ended: let observers write what they hold."""
    for observer in service.observers:
        end = getattr(observer, "close", None)
        if end is not None:
            end()
