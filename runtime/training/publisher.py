"""Trained plans become versions of an endpoint, in a runtime or in a folder of models."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import oven
from objectstore.atomic import locked, write_file
from runtime.errors import BadCall, InService, UnknownEndpoint
from runtime.repository.layout_own import next_version
from runtime.repository.listing import wrong_name
from runtime.repository.route_files import FILE
from runtime.rollout import Rollout
from runtime.runtime import Runtime
from runtime.training.recipe import path_digest

#: The version that answers, and the one before.
_VERSIONS = 2
#: Seconds for others to write a version, after which they are not waited for.
_LOCK_SECONDS = 30.0


class Publisher:
    """Gives an endpoint its next versions, and removes those before its own last two.

    In a runtime, a version goes into service at once, unless a route says what answers. With the
    terms of a `rollout`, it goes through one where another version answers. In a folder, servers
    load it. A version that a route or a graph names stays.
    """

    def __init__(
        self, name: str, target: Runtime | str | Path, rollout: Mapping[str, object] | None = None
    ) -> None:
        """Publish as the endpoint `name` of a runtime, or of a folder by its path."""
        if wrong := wrong_name(name, "1"):
            raise BadCall("this name cannot be served", found=wrong)
        if rollout is not None and not isinstance(target, Runtime):
            hint = "begin it at a server of the folder: POST /v2/models/NAME/rollout"
            raise BadCall("a folder has no requests for a rollout", where=str(target), hint=hint)
        self.name, self.target, self._rollout = name, target, rollout
        self._published: list[str] = []

    def is_first(self) -> bool:
        """True if the endpoint has no version yet."""
        if isinstance(self.target, Runtime):
            return self.name not in self.target.endpoints.champions
        return next_version(Path(self.target) / self.name) == 1

    def is_rolling_out(self) -> bool:
        """True while a rollout of the endpoint is not over."""
        return self._rollout_now() is not None

    def _rollout_now(self) -> Rollout | None:
        known = isinstance(self.target, Runtime) and self.target.experiments.rollouts
        rollout = known.get(self.name) if known else None
        return rollout if isinstance(rollout, Rollout) and not rollout.is_over() else None

    def answering(self) -> list[str]:
        """The digests of what answers and of what is rolled out; in a folder, of what is newest."""
        if isinstance(self.target, Runtime):
            champion = self.target.endpoints.champions.get(self.name)
            found, rollout = [champion] if champion else [], self._rollout_now()
            with suppress(UnknownEndpoint):
                found += [self.target.endpoints.find(rollout.terms.to)] if rollout else []
            return [each.digest for each in found]
        folder = Path(self.target) / self.name
        last = folder / str(next_version(folder) - 1) / f"{self.name}.pretzel"
        return [path_digest(last)] if last.is_file() else []

    def digest(self, path: Path) -> str:
        """The digest by which `answering` knows the plan in a file."""
        in_runtime = isinstance(self.target, Runtime)
        return oven.load(path, mapped=False).digest if in_runtime else path_digest(path)

    def publish(self, path: Path) -> str:
        """Publish the plan in a file, unless it answers already; the version's address."""
        target = self.target
        if isinstance(target, Runtime):
            version = self._register(target, path)
        else:
            version = self._write(Path(target) / self.name, path.read_bytes())
        self._published += [version] if version not in self._published else []
        for former in self._published[:-_VERSIONS]:
            with suppress(InService):
                if isinstance(target, Runtime):
                    target.unregister(self.name, former)
                elif not (Path(target) / self.name / FILE).exists():
                    shutil.rmtree(Path(target) / self.name / former, ignore_errors=True)
                self._published.remove(former)
        return f"{self.name}@{version}"

    def _register(self, runtime: Runtime, path: Path) -> str:
        plan, champion = oven.load(path, mapped=False), runtime.endpoints.champions.get(self.name)
        if champion is not None and champion.digest == plan.digest:
            return champion.version
        if champion is None or self._rollout is None:
            return runtime.register(self.name, plan)
        if self.is_rolling_out():
            runtime.rollout(self.name).abort("a later version was trained")
        version = runtime.register(self.name, plan, activate=False)
        runtime.rollout(self.name, to=version, **self._rollout)
        return version

    def _write(self, folder: Path, data: bytes) -> str:
        name = f"{self.name}.pretzel"
        with locked(folder / ".lock", _LOCK_SECONDS):  # others may write the same
            number = next_version(folder)
            last = folder / str(number - 1) / name
            if last.is_file() and last.read_bytes() == data:
                return str(number - 1)
            for version in map(str, count(number)):
                with suppress(FileExistsError):  # it is there without a model
                    (folder / version).mkdir()
                    write_file(folder / version / name, [data])
                    return version
        raise AssertionError("a count has no end")
