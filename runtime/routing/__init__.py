"""The version that answers a request: champions, splits, tenants, shadows, and their history."""

from runtime.routing.history import Change
from runtime.routing.pairs import Pair, PairSink
from runtime.routing.route import Route
from runtime.routing.shadows import ShadowStats

__all__ = ["Change", "Pair", "PairSink", "Route", "ShadowStats"]
