"""`pretzel cluster`: replicas of a served folder on the machines of a Ray cluster."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from runtime.cli import common
from runtime.cli.errors import ArgumentError, CommandError, Exit
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from runtime.cluster.serving import Scale
    from runtime.cluster.serving.ray_actors import Deployment

DESCRIPTION = """\
`up` serves a folder of models from several processes on the machines of a running Ray; each has a
port of its own, and clients ask replicas directly or by way of a front. `status` tells what runs,
`sync` follows the folder now and returns when every replica has followed, `scale` changes the
number of replicas, `roll` replaces all processes one by one, and `down` ends everything after the
last answers. Ray starts killed processes again."""
EXAMPLES = """\
  ray start --head
  pretzel cluster up models --replicas 4 --front haproxy --port 8080
  pretzel cluster up models --replicas 0..8 --standby 1
  pretzel cluster up s3://bucket/models --staging s3://bucket/plans
  pretzel cluster status
  pretzel cluster scale 6
  pretzel cluster down
"""
_CONNECT_SECONDS = 5.0
ACTIONS = ("up", "status", "sync", "scale", "roll", "down")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument(
        "what",
        nargs="?",
        help="with up: a folder of models, or its URL; with scale: a number of replicas",
    )
    parser.add_argument("--address", default="auto", help="of Ray (the one that runs here)")
    parser.add_argument("--name", default="pretzel", help="of the cluster on Ray (pretzel)")
    parser.add_argument(
        "--wait", type=common.amount, default=120.0, help="seconds until all have followed (120)"
    )
    up = parser.add_argument_group("up")
    up.add_argument(
        "--replicas",
        default="auto",
        help="a number, N..M by load, or auto: from 1 to as many as Ray has room for",
    )
    up.add_argument(
        "--standby", type=int, default=0, help="processes that become replicas at once (0)"
    )
    up.add_argument(
        "--cpus", type=common.amount, default=1.0, help="processors of each replica (1)"
    )
    up.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of all processes; `node` is that of each machine (127.0.0.1)",
    )
    up.add_argument("--port", type=int, default=8000, help="of the front (8000)")
    up.add_argument(
        "--front",
        choices=("direct", "haproxy", "ray"),
        default="direct",
        help="what listens there: a front that clients ask for the replicas, HAProxy, or the "
        "proxy of Ray Serve (direct)",
    )
    up.add_argument(
        "--lease", type=common.amount, default=5.0, help="seconds for which replicas may answer (5)"
    )
    up.add_argument(
        "--poll", type=common.amount, default=2.0, help="seconds between looks for changes (2)"
    )
    up.add_argument(
        "--staging",
        metavar="DIR",
        help="for plans; a directory that every machine sees, or a URL on object storage",
    )
    up.add_argument("--tokens", metavar="FILE", help="as for serve")
    common.tls(up.add_argument)
    up.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="as for serve")
    up.add_argument("--memory", metavar="SIZE", type=common.size, help="for plans of a replica")
    common.trust(parser)
    common.allow_python(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Execute the command."""
    if options.what is None and options.action in {"up", "scale"}:
        wanted = "a folder" if options.action == "up" else "a number of replicas"
        raise ArgumentError(f"`{options.action}` needs {wanted}")
    deployment = _deployment(options) if options.action == "up" else None
    _connect(options.address)
    if deployment is not None:
        return _up(deployment, options, out)
    return _other(options, out)


def _connect(address: str) -> None:
    import ray

    kept = {name: value for name, value in os.environ.items() if name.startswith("PRETZEL_")}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": kept},
        )
    except (OSError, ValueError) as problem:
        raise CommandError(
            "there is no Ray to run on",
            where=address,
            found=str(problem)[:200],
            hint="`ray start --head` starts one on this machine",
        ) from None
    except RuntimeError as problem:
        raise CommandError(
            "Ray does not let this process in",
            where=address,
            found=str(problem).strip().splitlines()[-1][:200],
            hint="where it asks for tokens, RAY_AUTH_MODE and RAY_AUTH_TOKEN are its own",
        ) from None


def _deployment(options: argparse.Namespace) -> Deployment:
    from runtime.cli.serving import server_settings
    from runtime.http.watch.telemetry import check
    from runtime.repository.object_storage import is_url
    from runtime.workers import WorkerOptions

    server = server_settings(options)
    if (server.host, server.port) != (options.host, options.port):
        raise ArgumentError("a cluster's address is --host and --port", where="--set")
    if server.tls_cert and options.front != "direct":
        raise ArgumentError(
            "this front speaks plain HTTP with clients and replicas",
            where=f"--front {options.front}",
            found=f"tls_cert={server.tls_cert}",
            hint="--front direct has TLS",
        )
    check(server)
    from runtime.cluster.serving import ClusterSettings
    from runtime.cluster.serving.ray_actors import Deployment

    for name in ("lease", "poll", "cpus", "wait"):
        if not getattr(options, name) > 0:
            raise ArgumentError(f"--{name} is more than 0", found=f"{getattr(options, name):g}")
    folder = options.what if is_url(options.what) else str(Path(options.what).absolute())
    own = Path(gettempdir()) / f"pretzel-{options.name}"
    plans = options.staging if options.staging and is_url(options.staging) else ""
    replicas = WorkerOptions(
        replace(server, host="127.0.0.1", port=0),
        executors=max(1, round(options.cpus)),
        memory_budget=options.memory,
        owner=options.name,
        allow_python=tuple(options.allow_python),
    )
    settings = ClusterSettings(
        folder,
        str(own if plans else Path(options.staging or own).absolute()),
        plans=plans,
        host=options.host,
        port=options.port if options.front == "direct" else _free_port(options.host),
        scale=scale(options.replicas, 1),
        standby=options.standby,
        options=replicas,
        lease=options.lease,
        poll=options.poll,
        trust_pickle=options.trust_pickle,
    )
    bind = f"{options.host}:{options.port}" if options.front == "haproxy" else ""
    return Deployment(settings, options.name, options.cpus, bind)


def scale(text: str, room: int) -> Scale:
    """The bounds of a number of replicas: `3`, `0..8`, or `auto` for 1 to `room`."""
    from runtime.cluster.serving import Scale

    least, _, most = ("1", "..", str(room)) if text == "auto" else text.partition("..")
    try:
        return Scale(int(least), int(most or least))
    except ValueError:
        raise ArgumentError(
            "replicas are a number, N..M, or auto", where=f"--replicas {text}"
        ) from None


def _free_port(host: str) -> int:
    """A port for the front that HAProxy and Ray's proxy ask: it stays when it is started again."""
    with socket.create_server(("" if host == "node" else host, 0)) as trial:
        return int(trial.getsockname()[1])


def _up(deployment: Deployment, options: argparse.Namespace, out: CommandOutput) -> int:
    import ray

    from runtime.cluster.serving import ray_actors

    room = int(ray.cluster_resources().get("CPU", 1) / max(options.cpus, 0.01))
    settings = deployment.settings
    if options.replicas == "auto":
        settings = replace(settings, scale=scale("auto", max(1, room)))
    if settings.scale.least > room:
        raise CommandError(
            "Ray has no room for so many replicas",
            found=f"{room} of {options.cpus:g} processors each",
            hint="--replicas, or --cpus 0.5",
        )
    actor = ray_actors.up(replace(deployment, settings=settings), options.wait)
    status = ray_actors.asked(actor.status.remote(), options.wait)
    host = ray_actors.address_here(options.host)
    url = f"http://{host}:{options.port}"
    if options.front == "ray":
        from runtime.cluster.serving import ray_proxy

        try:
            ray_proxy.start(options.name, host, options.port, status["front"], options.wait)
        except BaseException:
            ray_actors.down(options.name)
            raise
    elif options.front == "direct":
        url = status["front"]
    ready = [each["url"] for each in status["replicas"] if each["state"] == "ready"]
    versions = len(status["versions"])
    out.result(
        {"event": "up", "url": url, "replicas": ready, "models": versions},
        f"{len(ready)} replicas of {versions} versions at {url}\n" + "\n".join(ready),
    )
    return Exit.OK


def _other(options: argparse.Namespace, out: CommandOutput) -> int:
    from runtime.cluster.serving import ray_actors

    actor = ray_actors.running(options.name)
    if options.action == "down":
        from runtime.cluster.serving import ray_proxy

        ray_proxy.stop(options.name, options.wait)
        ray_actors.down(options.name, options.wait)
        out.result({"event": "down"}, "all replicas have ended")
    elif options.action == "status":
        _tell(ray_actors.asked(actor.status.remote(), options.wait), out)
    elif options.action == "sync":
        changes = ray_actors.asked(actor.ask.remote("sync", options.wait), options.wait)
        out.result({"changes": changes}, "\n".join(changes) or "nothing has changed")
    elif options.action == "roll":
        count = ray_actors.asked(actor.ask.remote("roll", options.wait), options.wait)
        out.result({"replaced": count}, f"{count} replicas replaced")
    else:
        if not options.what.isdigit():
            raise ArgumentError("`scale` needs a number of replicas", where=options.what)
        ray_actors.asked(actor.ask.remote("scale_to", int(options.what)), options.wait)
        _tell(
            ray_actors.asked(actor.ask.remote("wait_ready", None, options.wait), options.wait), out
        )
    return Exit.OK


def _tell(status: dict[str, Any], out: CommandOutput) -> None:
    lines = [
        f"replica {each['number']}  {each['state']:8} {each['url']}  process {each['process']} on "
        f"node {each['node'][:8]}, change {each['generation']} of {status['generation']}"
        for each in status["replicas"]
    ]
    lines += [
        f"{name}@{version}  {state}" + (f": {reason}" if reason else "")
        for name, version, state, reason in status.get("versions", ())
        if state != "READY"
    ]
    out.result(status, "\n".join([f"front {status['front']}", *lines]))
