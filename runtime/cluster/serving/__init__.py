"""Replicas on several machines, on Ray, each with an HTTP front end that clients ask directly.

ClusterClient    asks replicas, and another one where a connection breaks
Controller       holds the folder, starts replicas, tells all of them what to serve
ClusterSettings  what a cluster serves, and how
Scale            the bounds of the number of replicas
"""

from __future__ import annotations

from runtime.cluster.serving.autoscaling import Scale
from runtime.cluster.serving.client import ClusterClient
from runtime.cluster.serving.controller import Controller
from runtime.cluster.serving.settings import ClusterSettings

__all__ = ["ClusterClient", "ClusterSettings", "Controller", "Scale"]
