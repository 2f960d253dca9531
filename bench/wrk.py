"""wrk as the generator of HTTP load, if it is installed: written in C, it takes little time itself.

Complete requests are built beforehand and sent in turns. wrk keeps all times in a histogram of
microseconds; a short script makes it write the figures.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import client
from bench.histogram import Histogram
from bench.machine import ROOT

_SCRIPT = """
local requests = {%s}
local place = 0
request = function()
  place = place %% #requests + 1
  return requests[place]
end
done = function(summary, latency, requests)
  local file = io.open("%s", "w")
  local e = summary.errors
  file:write(string.format(
    '{"requests": %%d, "microseconds": %%d, "p50": %%.1f, "p99": %%.1f, "p999": %%.1f, ' ..
    '"errors": %%d}', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    e.connect + e.read + e.write + e.status + e.timeout))
  file:close()
end
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a race: requests per second, milliseconds, and the client's name."""

    rate: float
    p50: float
    p99: float
    p999: float
    by: str


def race(
    port: int,
    requests: Sequence[bytes],
    connections: int,
    seconds: float,
    before: Sequence[str] = (),
) -> Outcome:
    """Run the load: each connection sends its next request after its last answer.

    `before` is a command prefix that enters the server's network namespace, if it has one.
    """
    program = shutil.which("wrk")
    if program is None and before:
        return _without_inside(port, requests, connections, seconds, before)
    if program is None:
        return _without(port, requests, connections, seconds)
    with TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        script = Path(folder, "script.lua")
        script.write_text(_SCRIPT % (",".join(map(_quoted, requests)), out), encoding="ascii")
        size = ["-t1", f"-c{connections}", f"-d{max(1, ceil(seconds))}s"]
        command = [*before, program, *size, "-s", str(script), f"http://127.0.0.1:{port}/"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if not out.exists():
            raise ConnectionError(f"wrk: {(done.stderr or done.stdout).strip()[-200:]}")
        figures = json.loads(out.read_text(encoding="utf-8"))
    if figures["errors"]:
        raise ConnectionError(f"{figures['errors']} of {figures['requests']} requests failed")
    rate = 1e6 * figures["requests"] / figures["microseconds"]
    p50, p99, p999 = (figures[name] / 1e3 for name in ("p50", "p99", "p999"))
    return Outcome(rate, p50, p99, p999, "wrk")


def _without(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Outcome:
    return outcome(client.race(port, requests, connections, seconds), seconds)


def outcome(times: Histogram, seconds: float) -> Outcome:
    """The outcome of a race by the built-in client."""
    p50, p99, p999 = (times.percentile(share) / 1e6 for share in (0.5, 0.99, 0.999))
    by = "the built-in client, which takes processor time itself"
    return Outcome(len(times) / seconds, p50, p99, p999, by)


def _without_inside(
    port: int, requests: Sequence[bytes], connections: int, seconds: float, before: Sequence[str]
) -> Outcome:
    """The same in a process that this prefix brings into the server's network namespace."""
    asked = {
        "port": port,
        "requests": [each.hex() for each in requests],
        "connections": connections,
        "seconds": seconds,
    }
    done = subprocess.run(
        [*before, sys.executable, "-m", __name__],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    if done.returncode:
        raise ConnectionError((done.stderr.strip().splitlines() or ["no answer"])[-1][:300])
    return Outcome(**json.loads(done.stdout))


def _quoted(request: bytes) -> str:
    """The request as a Lua string."""
    return '"' + "".join(f"\\{each:03d}" for each in request) + '"'


if __name__ == "__main__":
    given = json.load(sys.stdin)
    given["requests"] = [bytes.fromhex(each) for each in given["requests"]]
    print(json.dumps(asdict(_without(**given))))
