"""The replicas of a cluster one by one, as the endpoints that `Coded` and `Hedged` ask."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from objectstore import Closing
from runtime.cluster.parity.code import Rows
from runtime.cluster.parity.frontend import Answer, Endpoint
from runtime.cluster.serving.blocks import ask_once
from runtime.cluster.serving.client import ClusterClient
from runtime.errors import ClusterError

#: Requests on their way to one replica. More wait, while the other replicas have their own.
_THREADS = 8


class _SoleReplica(NamedTuple):
    client: ClusterClient
    pool: ThreadPoolExecutor


class Replicas(Closing):
    """Asks the replica of a number for one output of a model, and nobody else.

    A replica that is lost, or takes longer than `timeout`, is an answer that is not there: the
    front end reconstructs it, or asks another one. Use it as a context manager.
    """

    def __init__(
        self, client: ClusterClient, name: str, output: str, *, timeout: float = 10.0
    ) -> None:
        self._client, self._name, self._output, self._timeout = client, name, output, timeout
        self._alone: dict[str, _SoleReplica] = {}
        # Looking replicas up may take as long as a replica is late, so nobody waits for it.
        self._looks = ThreadPoolExecutor(1, "pretzel-replicas")
        self._look: Future[list[str]] = self._looks.submit(client.replicas)
        self._urls: list[str] = []
        self._closed = False

    def endpoints(self) -> list[Endpoint]:
        """One for each replica that is ready now; where that is replaced, the next one is asked."""
        self._urls = self._client.replicas()
        return [partial(self._ask, number) for number in range(len(self._urls))]

    async def _ask(self, number: int, rows: Rows) -> Answer:
        one = self._replica(number)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(one.pool, ask_once, one.client.request, self._name, rows)
        if self._output not in found.outputs:
            raise ClusterError(
                f"{self._name} has no output {self._output!r}",
                found="outputs: " + ", ".join(found.outputs),
            )
        return Answer(found.outputs[self._output], version=found.parity_of or found.plan)

    def _replica(self, number: int) -> _SoleReplica:
        if self._closed:
            raise ClusterError("these replicas are closed", where=self._name)
        if self._look.done():
            with suppress(ClusterError):
                self._urls = self._look.result() or self._urls
            self._look = self._looks.submit(self._client.replicas)
            for gone in self._alone.keys() - set(self._urls):
                self._end(self._alone.pop(gone))
        urls = self._urls
        if not urls:
            raise ClusterError("there is no replica now", where=self._name)
        url = urls[number % len(urls)]
        if url not in self._alone:
            pool = ThreadPoolExecutor(_THREADS, "pretzel-replica")
            self._alone[url] = _SoleReplica(self._client.alone(url, self._timeout), pool)
        return self._alone[url]

    def close(self) -> None:
        """Ask no more, and close all connections."""
        self._closed = True
        self._looks.shutdown(wait=False, cancel_futures=True)
        for each in self._alone.values():
            self._end(each)

    @staticmethod
    def _end(one: _SoleReplica) -> None:
        one.pool.shutdown(wait=False, cancel_futures=True)
        one.client.close()
