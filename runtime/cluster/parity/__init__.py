"""Answers of lost or late replicas, reconstructed from those of others and of a parity query.

recoverable     whether a program's answers can be reconstructed exactly, and after which node
Code            queries to parity queries, answers back to missing answers
Coded           replicated endpoints with parity queries beside them
Hedged          replicated endpoints where a second replica is asked as well
Replicas        those of a cluster, one by one
train           a parity model for programs without exact reconstruction

docs/contributing/parity.md explains them.
"""

from __future__ import annotations

from runtime.cluster.parity.code import ParityCode
from runtime.cluster.parity.frontend import Answer, Coded, Endpoint, Hedged
from runtime.cluster.parity.recovery import Recovery, recoverable
from runtime.cluster.parity.replicas import Replicas
from runtime.cluster.parity.training import ParityModel, train

__all__ = [
    "Answer",
    "Coded",
    "Endpoint",
    "Hedged",
    "ParityCode",
    "ParityModel",
    "Recovery",
    "Replicas",
    "recoverable",
    "train",
]
