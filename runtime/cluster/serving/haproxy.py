"""HAProxy before the replicas: its configuration, its process, and changes without a reload.

Replicas come and go by commands on HAProxy's socket; connections of clients stay. A request that
may be repeated is sent to another replica where its connection breaks. The front is the backup, so
that a request to a cluster without replicas wakes one.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit
from zlib import crc32

from objectstore import system
from runtime.cluster.serving.bodies import Homes, Roster
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.http.server import ServerError, listen

#: The file with the first choice for each model.
HOMES_MAP = "homes.map"
_START_SECONDS = 30.0
#: Lines of one command: HAProxy reads 16 KB at once.
_LINES = 50
_TEXT = """\
global
    stats socket {socket} mode 600 level admin
    pidfile {pidfile}
defaults
    mode http
    timeout connect 1s
    timeout client 75s
    timeout server 60s
    timeout queue 10s
    timeout check 3s
    option http-keep-alive
    option http-buffer-request
    option redispatch 1
    retries 3
frontend predictions
    bind {bind}
    acl short path_beg /predict/
    acl long path_beg /v1/models/ /v2/models/
    http-request set-var(txn.model) path,field(3,/),field(1,@) if short
    http-request set-var(txn.model) path,field(4,/),field(1,:) if long
    http-request set-var(txn.home) var(txn.model),map_str({homes}) if short or long
    default_backend replicas
backend replicas
    balance leastconn
    use-server %[var(txn.home)] if {{ var(txn.home) -m found }}
    http-reuse always
    option httpchk GET /v2/health/ready
    retry-on conn-failure empty-response junk-response response-timeout 503
    acl repeatable path_reg -- ^/predict/[^/]+$ ^/v[12]/models/.+(/infer|:predict)$
    acl repeatable method GET HEAD
    http-request disable-l7-retry if !repeatable
    default-server check inter 500ms fall 2 rise 1 pool-purge-delay 5s
    server front {front} backup no-check
{servers}
"""


def configuration(bind: str, front: str, place: Path, slots: int) -> str:
    """The text of its configuration, with room for so many replicas."""
    servers = "\n".join(f"    server r{slot} 127.0.0.1:1 disabled" for slot in range(slots))
    return _TEXT.format(
        socket=place / "haproxy.sock",
        pidfile=place / "haproxy.pid",
        bind=bind,
        homes=place / HOMES_MAP,
        front=urlsplit(front).netloc,
        servers=servers,
    )


class HAProxy:
    """A running HAProxy; one that an earlier controller has left running is taken over."""

    def __init__(self, bind: str, front: str, place: Path, slots: int) -> None:
        """`place` is a directory for its files."""
        self._bind, self._place, self._slots = bind, place, slots
        self._map = place / HOMES_MAP
        self._text = configuration(bind, front, place, slots)
        self._held: dict[int, str] = {}
        self._number = -1
        self._placed: dict[str, str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it, unless it runs with this configuration."""
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if program is None:
            raise ClusterError(
                "HAProxy is not installed", hint="apt-get install haproxy, or another --front"
            )
        path = self._place / "haproxy.cfg"
        same = path.exists() and path.read_text("utf-8") == self._text
        if same and self._runs():
            # The replicas that an earlier controller has put into places.
            found = {}
            lines = self._say("show servers state replicas").splitlines()
            names = next(line for line in lines if line.startswith("# ")).split()[1:]
            for line in lines:
                server = dict(zip(names, line.split(), strict=False))
                name, port = server.get("srv_name", ""), server.get("srv_port", "1")
                if name[:1] == "r" and name[1:].isdigit() and port != "1":
                    found[int(name[1:])] = f"http://{server['srv_addr']}:{port}"
            self._held = found
            return
        self.stop()
        self._wait_free()
        path.write_text(self._text, "utf-8")
        self._map.touch()
        command = [program, "-D", "-f", str(path)]
        try:
            done = subprocess.run(  # noqa: S603 (the program that the system has)
                command, capture_output=True, text=True, check=False, timeout=_START_SECONDS
            )
            said = done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = f"nothing in {_START_SECONDS:g} s"
        if said:
            raise ClusterError("HAProxy does not start", where=str(path), found=said[:500])
        end = time.monotonic() + 5.0
        while not self._runs() and time.monotonic() < end:
            time.sleep(0.02)

    def _wait_free(self) -> None:
        """Raise where its address is taken, which it would share; the one before may yet end."""
        host, _, port = self._bind.rpartition(":")
        end = time.monotonic() + 2.0
        while True:
            try:
                return listen(ServerSettings(host=host.strip("[]"), port=int(port))).close()
            except ServerError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """End it, after the answers to its requests."""
        with suppress(OSError, ValueError):
            number = int((self._place / "haproxy.pid").read_text("utf-8").split()[0])
            if "haproxy" in system.told(f"{number}/cmdline"):
                os.kill(number, signal.SIGUSR1)
            (self._place / "haproxy.pid").unlink()

    def update(self, members: Roster, homes: Homes) -> None:
        """Send requests to these replicas; an older state than the last one changes nothing."""
        with self._lock:
            if members.number <= self._number:
                return
            self._number = members.number
            ready = {each.url for each in members.ready()}
            for slot, url in list(self._held.items()):
                if url not in ready:
                    self._say(f"set server replicas/r{slot} state maint")
                    del self._held[slot]
            free = [slot for slot in range(self._slots) if slot not in self._held]
            for url, slot in zip(sorted(ready - set(self._held.values())), free, strict=False):
                where = urlsplit(url)
                server = f"set server replicas/r{slot}"
                self._say(f"{server} addr {where.hostname} port {where.port}")
                self._say(f"{server} check-port {where.port}")
                self._say(f"{server} health up")
                self._say(f"{server} state ready")
                self._held[slot] = url
            self._send_homes(members, homes)

    def _send_homes(self, members: Roster, homes: Homes) -> None:
        """Tell for each model which place is asked first: of its homes one by its name's hash."""
        slots = {url: slot for slot, url in self._held.items()}
        ready = {each.number: slots[each.url] for each in members.ready() if each.url in slots}
        placed = {}
        for name, numbers in homes.models.items():
            there = [ready[number] for number in numbers if number in ready]
            if there:
                placed[quote(name, safe="")] = f"r{there[crc32(name.encode()) % len(there)]}"
        if placed == self._placed:
            return
        path, lines = self._map, [f"{name} {slot}" for name, slot in placed.items()]
        version = self._say(f"prepare map {path}").split()[-1]
        for part in (lines[at : at + _LINES] for at in range(0, len(lines), _LINES)):
            self._say(f"add map @{version} {path} <<\n" + "\n".join(part) + "\n")
        self._say(f"commit map @{version} {path}")
        self._placed = placed

    def _runs(self) -> bool:
        try:
            return "Uptime" in self._say("show info")
        except OSError:
            return False

    def _say(self, command: str) -> str:
        with socket.socket(system.UNIX or -1) as connection:
            connection.settimeout(2.0)
            connection.connect(str(self._place / "haproxy.sock"))
            connection.sendall(f"{command}\n".encode())
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts).decode()
