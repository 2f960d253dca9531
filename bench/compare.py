"""Runs to compare: files of results, or commits, which are measured with a short run.

A commit is checked out into a working tree of its own and measured with its own bench, by the
interpreter and the libraries of this checkout. Models and machine code come from the same caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.machine import ROOT
from bench.workload import cache_folder


def run_of(name: str, options: Sequence[str] = ()) -> Path:
    """A file of results by its name, or measured for a commit."""
    if Path(name).is_file():
        return Path(name)
    commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if not commit:
        raise SystemExit(f"{name} is neither a file of results nor a commit of this checkout")
    out = cache_folder().resolve() / "commits" / f"{commit[:10]}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    with _tree(commit) as folder:
        sys.stderr.write(f"{name} is {commit[:10]}\n")
        command = [
            sys.executable,
            "-m",
            "bench",
            "quick",
            *options,
            "--no-report",
            "--out",
            str(out),
        ]
        variables = {**os.environ, "PYTHONPATH": str(folder)}
        variables["PRETZEL_BENCH_CACHE"] = str(cache_folder().resolve())
        variables.setdefault("PRETZEL_CACHE", str(ROOT / ".cache" / "code"))
        subprocess.run(command, cwd=folder, env=variables, check=True)
    return out


@contextmanager
def _tree(commit: str) -> Iterator[Path]:
    """A temporary working tree of the commit."""
    folder = cache_folder().resolve() / "commits" / commit[:10]
    shutil.rmtree(folder, ignore_errors=True)
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
