"""Which version answers which request: champions, splits, tenants, and their history."""

from runtime.routing.history import Change
from runtime.routing.route import Route
from runtime.routing.router import Routed, Router

__all__ = ["Change", "Route", "Routed", "Router"]
