"""Servers in network namespaces, where listening on every interface is not visible outside.

Linux lets a user create namespaces of network, processes and mounts, unless that is forbidden. All
processes of a server are in them and end with them, as do its files below `SCRATCH`. Clients have
to be inside too: `entering` is the prefix of their commands.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path

from bench.crew import Absent
from bench.machine import ROOT
from bench.servers import SCRATCH

_NAMESPACES = ("unshare", "-rnm", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c")
_SETTING_UP = (
    f"ip link set lo up && mount -t tmpfs tmpfs {SCRATCH} && mount -t tmpfs tmpfs /dev/shm"
)
_LISTENS = "0A"  # the state LISTEN in /proc/net/tcp


def starting() -> tuple[str, ...]:
    """The prefix of a server's command; raises Absent if namespaces cannot be created."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        raise Absent(f"it needs a network of its own, and {missing[0]} is not installed")
    tried = subprocess.run(
        [*_NAMESPACES, _SETTING_UP], capture_output=True, text=True, check=False, timeout=20
    )
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or [f"code {tried.returncode}"])[-1]
        raise Absent(f"it needs a network of its own, which this user may not have: {said}")
    return (*_NAMESPACES, f'{_SETTING_UP} && exec "$@"', "sh")


def entering(process: int) -> tuple[str, ...]:
    """The prefix of a command that runs in the namespaces of this process."""
    return ("nsenter", "--preserve-credentials", "-U", "-n", "-t", str(process))


def listens(process: int, port: int) -> bool:
    """Whether a port is listened on in the network of this process."""
    lines = Path(f"/proc/{process}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    return any(int(each[1].split(":")[1], 16) == port and each[3] == _LISTENS for each in fields)


def answer(before: Sequence[str], port: int, request: bytes) -> list[float]:
    """The numbers of the first output of one answer, asked from inside."""
    done = subprocess.run(
        [*before, sys.executable, "-m", __name__, str(port), request.hex()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    if done.returncode:
        raise ConnectionError((done.stderr.strip().splitlines() or ["no answer"])[-1][:300])
    return [float(each) for each in json.loads(done.stdout)["outputs"][0]["data"]]


def ask(port: int, request: bytes) -> bytes:
    """The body of one answer, in any transfer encoding."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        with HTTPResponse(connection) as response:
            response.begin()
            body = response.read()
    if response.status != HTTPStatus.OK:
        raise ConnectionError(f"status {response.status}: {body[:200]!r}")
    return body


if __name__ == "__main__":
    sys.stdout.buffer.write(ask(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
