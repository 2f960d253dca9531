"""Clients of a server: `Client` for threads and `AsyncClient` for an event loop."""

from runtime.client.client import AsyncClient, CallFailed, CallLate, Client

__all__ = ["AsyncClient", "CallFailed", "CallLate", "Client"]
