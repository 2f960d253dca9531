"""Starts a contestant's worker process, sends it commands, ends it.

A process only runs while it executes a command: in between it is stopped, with all of its threads.
Threads of some libraries go on spinning when idle, and hundreds of models have some each: they
would disturb the next contestant's measurement.

A contestant that fails is reported with the reason and left out; the others go on.
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
    """A contestant is left out; the message is the reason in the report."""


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
        """Start the process, and let it import its libraries."""
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
        hello = self.ask("hello", name=name, threads=threads, options=dict(options or {}))
        self.versions: dict[str, str] = hello["versions"]
        self.start_seconds: float = hello["start_seconds"]
        missing = [
            each for each, installed in self.versions.items() if installed == "not installed"
        ]
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
        with suppress(BrokenPipeError):  # if it has ended early
            process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        self._log.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment(threads: int, more: Mapping[str, str]) -> dict[str, str]:
    """The variables of a contestant's process."""
    variables = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    # Libraries of other environments must not find ours, but they need this package.
    variables["PYTHONPATH"] = os.environ.get("PYTHONPATH") or str(ROOT)
    variables.setdefault("PRETZEL_CACHE", str(ROOT / ".cache" / "code"))
    variables["PYTHONSAFEPATH"] = "1"  # only the path above, not the current folder
    variables["LC_ALL"] = "en_US.UTF-8"  # onnxruntime refuses text models in other locales
    variables["PYTHONHASHSEED"] = "0"
    return {**variables, **more}


def log_file(name: str) -> Path:
    """The file for a process' output."""
    folder = cache_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"
