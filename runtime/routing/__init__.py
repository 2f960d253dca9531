"""Which version answers which request: champions, splits, tenants, shadows, and their history."""

from runtime.routing.history import Change
from runtime.routing.pairs import Pair, Pairs
from runtime.routing.route import Route
from runtime.routing.shadows import ShadowStats

__all__ = ["Change", "Pair", "Pairs", "Route", "ShadowStats"]
