"""A cluster behind Ray Serve's own proxy: a deployment that passes requests on to replicas.

For those who have Ray Serve's address in use. A request takes two hops more than one that goes to a
replica directly.
"""

from __future__ import annotations

import errno
import itertools
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import aiohttp
import msgspec
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from runtime.cluster.serving.bodies import PATH, Roster
from runtime.cluster.serving.client import REPEATABLE
from runtime.errors import ClusterError
from runtime.service.done_future import done

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})
_REFRESH, _ATTEMPTS, _LOOK_SECONDS = 1.0, 4, 10.0
#: Time limits for an answer of a replica or the front, and for the list of members.
_ANSWER, _LOOK = (aiohttp.ClientTimeout(total=seconds) for seconds in (60.0, 2.0))
_LOST = (aiohttp.ClientError, TimeoutError)


class Passing:
    """Passes requests on."""

    def __init__(self, front: str) -> None:
        self._front, self._urls = front, [front]
        self._looked, self._turn = float("-inf"), itertools.count()
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, request: Request) -> Response:
        """The answer of a replica; of the front where there is none."""
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False, timeout=_ANSWER)
        body = await request.body()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        repeatable = request.method in {"GET", "HEAD"} or REPEATABLE.search(request.url.path)
        for attempt in range(_ATTEMPTS if repeatable else 1):
            await self._look(self._session, headers, again=attempt > 0)
            url = self._urls[next(self._turn) % len(self._urls)]
            with suppress(*_LOST):
                async with self._session.request(
                    request.method, url + path, data=body, headers=headers
                ) as found:
                    if found.status == 503 and attempt + 1 < _ATTEMPTS and repeatable:
                        continue
                    kept: Any = {k: v for k, v in found.headers.items() if k.lower() not in _HOP}
                    return Response(await found.read(), found.status, kept)
        return Response('{"error":"no replica answers"}', 502, media_type="application/json")

    async def _look(
        self, session: aiohttp.ClientSession, headers: dict[str, str], *, again: bool
    ) -> None:
        """Look up the replicas with a client's token, if that was long ago or one has failed."""
        now = time.monotonic()
        if now - self._looked < (0.05 if again else _REFRESH):
            return
        self._looked = now
        for url in (*self._urls, self._front):
            with suppress(*_LOST, msgspec.MsgspecError):
                token = {name: headers[name] for name in headers if name == "authorization"}
                async with session.get(url + PATH, headers=token, timeout=_LOOK) as found:
                    if found.status in {401, 403}:  # of this client; another one may look them up
                        self._looked = float("-inf")
                        return
                    members = msgspec.json.decode(await found.read(), type=Roster)
                self._urls = [each.url for each in members.ready()] or [self._front]
                return
        self._urls = [self._front]


def start(name: str, host: str, port: int, front: str, seconds: float = 60.0) -> None:
    """Run it as an application of Ray Serve, with this name, within so many seconds.

    A Ray Serve that runs already stays at its own address, so its answer is what counts.
    """
    url, ours = f"http://{host}:{port}", not within(seconds, serve.status).proxies
    options = {"max_ongoing_requests": 1000, "ray_actor_options": {"num_cpus": 0}}
    passing = serve.deployment(**options)(Passing).bind(front)
    try:
        if ours and _is_taken(host, port):  # Ray Serve shares it with who lets it
            raise OSError(f"{host}:{port} is in use")
        within(seconds, partial(serve.start, http_options={"host": host, "port": port}))
        within(seconds, partial(serve.run, passing, name=name, route_prefix="/"))
        end = time.monotonic() + _LOOK_SECONDS
        while not _passes_on(url, late=time.monotonic() > end):
            time.sleep(0.1)
    except (OSError, RuntimeError, ray.exceptions.RayError, msgspec.MsgspecError) as problem:
        with suppress(TimeoutError):
            within(seconds, serve.shutdown if ours else partial(serve.delete, name))
        raise ClusterError(
            "Ray Serve does not pass requests on here",
            where=url,
            found=(str(problem).strip() or type(problem).__name__).splitlines()[-1][:300],
            hint="another --port; where Ray Serve runs already, the one that it was started with",
        ) from None


def _passes_on(url: str, *, late: bool) -> bool:
    """True if the front answers; a proxy may have no route yet when its application is ready."""
    try:
        with urlopen(url + PATH, timeout=_LOOK_SECONDS) as found:  # noqa: S310 (HTTP, see above)
            msgspec.json.decode(found.read(), type=Roster)
    except HTTPError as problem:  # 401: a cluster with tokens says that it needs one
        if problem.code != 401 and (problem.code != 404 or late):
            raise
        return problem.code == 401
    return True


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Call what takes no time limit of its own; TimeoutError where that takes longer."""
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    Thread(target=lambda: ended.put(done(call)), name="pretzel-ray", daemon=True).start()
    try:
        return ended.get(timeout=seconds).result()
    except Empty:
        raise TimeoutError(f"Ray has not answered in {seconds:g} s") from None


def _is_taken(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError as problem:  # an address of another node's may be free there
        return problem.errno == errno.EADDRINUSE
    return False


def stop(name: str, seconds: float = 60.0) -> None:
    """End the application, if there is one; Ray Serve itself runs on."""
    if name in within(seconds, serve.status).applications:
        within(seconds, partial(serve.delete, name))
