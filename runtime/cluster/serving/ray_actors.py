"""The controller and the replicas as actors of Ray, which places them and starts them again.

All actors are detached: they stay when the program that started them ends. Requests for predictions
do not pass through Ray.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import ray

from objectstore import Explained, system
from runtime.cluster.serving.bodies import Roster
from runtime.cluster.serving.controller import Controller
from runtime.cluster.serving.haproxy import HAProxy
from runtime.cluster.serving.link import Address
from runtime.cluster.serving.replica import Replica
from runtime.cluster.serving.settings import ClusterSettings
from runtime.errors import ClusterError

CONTROLLER, _REPLICA = "controller", "replica-"
#: What may be asked of the controller.
_ASKED = frozenset({"load", "roll", "scale_to", "sync", "unload", "wait_ready", "wake"})
#: Most replicas behind HAProxy.
_SLOTS = 256
_FIND_SECONDS = 5.0
#: Pause before a controller that could not be started again is tried once more.
_AGAIN_SECONDS = 1.0
#: Ray places an actor that asks for nothing at all on any node, whatever its strategy says.
_MEMORY = 1 << 20


@dataclass(frozen=True)
class Deployment:
    """A cluster on Ray: what it serves, and how its processes are placed."""

    settings: ClusterSettings
    name: str = "pretzel"
    """Two clusters on one Ray differ in it: it is the namespace of their actors."""
    cpus: float = 1.0
    """Processors that Ray reserves for each replica."""
    haproxy: str = ""
    """The address at which HAProxy listens; without one there is none."""


class RayLauncher:
    """Replicas as actors."""

    def __init__(self, deployment: Deployment) -> None:
        self._of = deployment

    def launch(self, number: int) -> None:
        """Start an actor, or find the one that is there."""
        of = self._of
        actor: Any = ray.remote(max_concurrency=2)(_ReplicaActor)
        actor.options(
            name=f"{_REPLICA}{number}",
            namespace=of.name,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            num_cpus=of.cpus,
            scheduling_strategy="SPREAD",
        ).remote(number, of.settings.host, of.settings.lease, of.name)

    def end(self, number: int) -> None:
        """Kill an actor, and let Ray not start it again."""
        with suppress(ValueError):  # it has ended already
            ray.kill(ray.get_actor(f"{_REPLICA}{number}", self._of.name), no_restart=True)

    def existing(self) -> list[int]:
        """The numbers of the actors that are there."""
        return [
            int(each["name"].removeprefix(_REPLICA))
            for each in ray.util.list_named_actors(all_namespaces=True)
            if each["namespace"] == self._of.name and each["name"].startswith(_REPLICA)
        ]


def address_here(host: str) -> str:
    """An address to listen at: `node` stands for that of the machine in the cluster of Ray."""
    return str(ray.util.get_node_ip_address()) if host == "node" else host


def _prompt() -> None:
    """Run at the priority of Ray's own processes: as its worker this has the one for batches."""
    with suppress(OSError):  # only root may, see docs/reference/cluster.md
        wanted = os.getpriority(os.PRIO_PROCESS, os.getppid())
        for thread in (system.PROC / "self" / "task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), wanted)


class _ControllerActor:
    """The controller; Ray starts it again where its machine or process ends."""

    def __init__(self, deployment: Deployment) -> None:
        _prompt()
        self._haproxy: HAProxy | None = None
        self._problem: Explained | None = None
        try:
            self._start(deployment)
        except Explained as problem:  # told to whoever asks: Ray would keep the last line of it
            self._problem = problem
        except OSError as problem:
            self._problem = ClusterError(
                "the controller cannot work here",
                where=deployment.settings.staging,
                found=str(problem),
                hint="--staging is a directory that every machine sees and may write to",
            )
        if self._problem and ray.get_runtime_context().was_current_actor_reconstructed:
            time.sleep(_AGAIN_SECONDS)  # replicas answer on meanwhile
            os._exit(1)

    def _start(self, deployment: Deployment) -> None:
        settings = deployment.settings
        settings = replace(settings, host=address_here(settings.host))
        place = Path(settings.staging)
        place.mkdir(parents=True, exist_ok=True)
        self._controller = Controller(settings, RayLauncher(deployment), on_members=self._changed)
        if deployment.haproxy:
            front, bind = self._controller.front.url, deployment.haproxy
            bind = bind.replace("node:", f"{settings.host}:")
            self._haproxy = HAProxy(bind, front, place, _SLOTS)
            self._haproxy.start()
        self._controller.start()

    def _changed(self, members: Roster) -> None:
        if self._haproxy is not None:
            self._haproxy.update(members, self._controller.placing.homes)

    def _running(self) -> Controller:
        if self._problem is not None:
            raise self._problem
        return self._controller

    def address(self) -> tuple[str, int, str]:
        """The address at which replicas join."""
        address = self._running().address()
        return address.host, address.port, address.secret

    def status(self) -> dict[str, Any]:
        """The replicas and the models."""
        controller = self._running()
        index = controller.repository.index()
        return {
            **msgspec.to_builtins(controller.members()),
            "wanted": controller.wanted,
            "controller": os.getpid(),
            "versions": [[each.name, each.version, each.state, each.reason] for each in index],
        }

    def ask(self, what: str, *arguments: object) -> Any:
        """Have the controller do something."""
        if what not in _ASKED:
            raise ClusterError("a controller cannot do this", found=what)
        answer = getattr(self._running(), what)(*arguments)
        return msgspec.to_builtins(answer) if what == "wait_ready" else answer

    def stop(self) -> None:
        """End all replicas, and HAProxy."""
        try:
            self._running().stop()
        finally:
            if self._haproxy is not None:
                self._haproxy.stop()


class _ReplicaActor:
    """A replica; after its process ends, Ray starts another one, maybe elsewhere."""

    def __init__(self, number: int, host: str, lease: float, name: str) -> None:
        self._name = name
        _prompt()
        node = ray.get_runtime_context().get_node_id()
        self._replica = Replica(number, address_here(host), self._find, lease, node)
        threading.Thread(target=self._run, name="pretzel-replica", daemon=True).start()

    def _find(self) -> Address:
        try:
            actor = ray.get_actor(CONTROLLER, self._name)
            return Address(*ray.get(actor.address.remote(), timeout=_FIND_SECONDS))
        except (ray.exceptions.RayError, ValueError) as problem:
            raise ConnectionError(f"the controller is not there: {problem}") from problem

    def _run(self) -> None:
        self._replica.run()
        # The controller ends this actor when it has asked for it; else nobody would.
        if self._replica.orphaned:
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def up(deployment: Deployment, seconds: float) -> Any:
    """Start a cluster; returns when its replicas are ready."""
    settings = replace(deployment.settings, identity=f"cluster-{token_hex(8)}")
    deployment = replace(deployment, settings=settings)
    kind: Any = ray.remote(max_restarts=-1, max_concurrency=16)(_ControllerActor)
    # This machine first, as its address is the one that was asked for; another if it is gone.
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    chosen = kind.options(
        num_cpus=0,
        memory=_MEMORY,
        name=CONTROLLER,
        namespace=deployment.name,
        lifetime="detached",
        scheduling_strategy=NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        ),
    )
    try:
        actor = chosen.remote(deployment)
    except ValueError as problem:  # what Ray raises for names is one
        raise ClusterError(
            "a cluster runs under this name",
            where=deployment.name,
            found=type(problem).__name__,
            hint="`pretzel cluster sync` follows its folder, `down` ends it, --name is another",
        ) from None
    try:
        asked(actor.ask.remote("wait_ready", None, seconds), seconds)
    except BaseException:
        with suppress(ClusterError):  # a controller that could not start is gone
            down(deployment.name)
        raise
    return actor


def running(name: str) -> Any:
    """The controller of a cluster that runs."""
    try:
        return ray.get_actor(CONTROLLER, name)
    except ValueError:
        raise ClusterError(
            "no cluster runs under this name", where=name, hint="pretzel cluster up FOLDER"
        ) from None


def asked(reference: object, seconds: float) -> Any:
    """An actor's answer; its errors are raised as they were there."""
    try:
        return ray.get(reference, timeout=seconds + _FIND_SECONDS)
    except ray.exceptions.GetTimeoutError:
        raise ClusterError("the controller does not answer in time", found=f"{seconds} s") from None
    except ray.exceptions.RayTaskError as problem:
        cause = problem.cause
        if isinstance(cause, Explained):
            raise cause from None
        raise
    except ray.exceptions.ActorUnavailableError:
        raise ClusterError("the controller is being started again", hint="ask again") from None
    except ray.exceptions.RayActorError as problem:
        raise ClusterError(
            "the controller cannot be started", found=str(problem).strip().splitlines()[-1][:500]
        ) from problem


def down(name: str, seconds: float = 60.0) -> None:
    """End a cluster after its last answers; nothing of it is left."""
    actor = running(name)
    try:
        with suppress(ray.exceptions.RayError):  # it has died, or never lived
            ray.get(actor.stop.remote(), timeout=seconds)
    finally:
        ray.kill(actor, no_restart=True)
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["namespace"] == name and each["name"].startswith(_REPLICA):
                with suppress(ValueError):
                    ray.kill(ray.get_actor(each["name"], name), no_restart=True)
