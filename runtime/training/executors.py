"""Executors of jobs: processes of this machine, or tasks of Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from objectstore import Closing, system
from runtime.errors import TrainingFailed
from runtime.training.job import perform

_END_SECONDS = 5.0
#: Modules of jobs, which a server of processes imports once.
_MODULES = ["flour.sklearn", "oven", "runtime.verify", "runtime.watch", "runtime.training.job"]
_MODULES += ["sklearn.linear_model"]  # which most recipes import, as do the libraries of trees


class JobExecutor(Protocol):
    """Does jobs, as `perform` does, side by side; `close` ends those that are under way."""

    def submit(self, job: str) -> Future[str]:
        """Do a job, now or as soon as there is room for it."""


class WorkerProcesses(Closing):
    """A process for each job; one that ends, or is killed, fails its own job alone."""

    def __init__(self, number: int | None = None) -> None:
        """Have this many processes at a time; by default, one for each core."""
        server = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if server else "spawn")
        if server:
            self._context.set_forkserver_preload(_MODULES)
        self._threads = ThreadPoolExecutor(number or system.cores(), "pretzel-training")
        self._running: set[BaseProcess] = set()
        self._is_closed = False

    def submit(self, job: str) -> Future[str]:
        """Do a job in a process of its own."""
        return self._threads.submit(self._done, job)

    def _done(self, job: str) -> str:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(theirs, job))
        with ours:
            with theirs:
                process.start()
            self._running.add(process)
            try:
                if self._is_closed:
                    process.kill()
                return str(ours.recv_bytes(), "utf-8")
            except EOFError:
                process.join(_END_SECONDS)
                what, code = "the process has ended without a result", process.exitcode
                raise TrainingFailed(what, found=f"exit code {code}") from None
            finally:
                process.join(_END_SECONDS)
                self._running.discard(process)

    def close(self) -> None:
        """Kill the processes that are left: what they have stored stays."""
        self._is_closed = True
        for process in [*self._running]:
            process.kill()
        self._threads.shutdown(cancel_futures=True)


class RayTasks(Closing):
    """A task of Ray for each job; the cache is a folder that all nodes see."""

    def __init__(self) -> None:
        """Use the Ray that this process is connected to, or start one."""
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR")
        self._ray: Any = ray
        self._tasks: list[Any] = []

    def submit(self, job: str) -> Future[str]:
        """Do a job as a task."""
        self._tasks.append(self._ray.remote(max_retries=0)(perform).remote(job))
        future: Future[str] = self._tasks[-1].future()
        return future

    def close(self) -> None:
        """Cancel the tasks that are left."""
        for task in self._tasks:
            self._ray.cancel(task, force=True)


def _work(answers: Connection, job: str) -> None:
    """Do a job in this process, which ends with the one that began it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)  # standard output is that of the command
    done = perform(job).encode()
    sys.stdout.flush()  # before the answer, after which the command may end
    answers.send_bytes(done)
    os._exit(0)  # whoever waits for the answer need not wait for the interpreter's end


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
