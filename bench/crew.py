"""The other end of the workers: starts a contestant's process, asks it, ends it.

A process only runs while it is asked: in between it is stopped, with all of its threads. Some
libraries' threads go on spinning for a while when they have nothing to do, and of hundreds of
models each has some: whoever came next would be measured beside them.

A contestant that fails is reported with the reason and takes no further part; the others go on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import environments
from bench.contestant import Contestant
from bench.contestants import find
from bench.machine import ROOT
from bench.workload import cache_folder

#: One thread for every library that has a pool of its own, unless an experiment says otherwise.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


class Absent(Exception):
    """A contestant takes no part; the message says why, and goes into the report."""


class Member:
    """One contestant's process."""

    def __init__(
        self,
        name: str,
        *,
        threads: int = 1,
        options: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start it, and let it import its libraries."""
        self.name = name
        self.kind: type[Contestant] = find(name)
        python = environments.python(self.kind.environment)
        if python is None:
            why = environments.reason(self.kind.environment)
            raise Absent(f"its environment is not there: {why}")
        self._log = (log or log_file(name)).open("ab")
        self._process = subprocess.Popen(
            [str(python), "-m", "bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment(threads, {**self.kind.variables, **(variables or {})}),
        )
        said = self.ask("hello", name=name, threads=threads, options=dict(options or {}))
        self.versions: dict[str, str] = said["versions"]
        self.start_seconds: float = said["start_seconds"]
        missing = [each for each, found in self.versions.items() if found == "not installed"]
        if missing:
            self.close()
            raise Absent(f"not installed: {', '.join(missing)}")

    def ask(self, do: str, *, limit: float = 900.0, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer, `limit` seconds at most."""
        timer = threading.Timer(limit, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            answer = self._exchange({"do": do, **arguments})
        finally:
            timer.cancel()
        if "error" in answer:
            self.close()
            raise Absent(f"{do}: {answer['error']}")
        return answer

    def _exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            code = self._process.wait()
            return {"error": f"its process ended with {code}; see {Path(self._log.name).name}"}
        self._process.send_signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        process = self._process
        process.send_signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # where it ended before it had read everything
            process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        self._log.close()

    def __enter__(self) -> Member:  # noqa: PYI034 (typing.Self is not in 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment(threads: int, more: Mapping[str, str]) -> dict[str, str]:
    """The variables of a contestant's process."""
    made = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    # Libraries of other environments must not find ours, but they need this package.
    made["PYTHONPATH"] = os.environ.get("PYTHONPATH") or str(ROOT)
    made.setdefault("PRETZEL_CACHE", str(ROOT / ".cache" / "code"))
    made["PYTHONSAFEPATH"] = "1"  # the path above is all there is, not where it is started
    made["LC_ALL"] = "en_US.UTF-8"  # onnxruntime refuses text models in any other
    made["PYTHONHASHSEED"] = "0"
    return {**made, **more}


def log_file(name: str) -> Path:
    """Where a process writes what it says."""
    folder = cache_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"
