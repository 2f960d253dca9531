"""Every way to serve hands all settings on to the same server: Python, command, workers, replicas.

What each setting does is asked in tests/runtime/http/test_settings.py.
"""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flour.core.errors import FlourError, ParameterError
from runtime import Runtime
from runtime.cli.serving import server_settings
from runtime.cluster.serving import ClusterClient, ClusterSettings, Controller, Scale
from runtime.cluster.serving.bodies import HOMES, PATH
from runtime.cluster.serving.replica import Replica
from runtime.errors import ClusterError
from runtime.http import Server, ServerSettings
from runtime.http.server import listen
from runtime.repository import Repository
from runtime.shutdown import Ending
from runtime.workers import WorkerOptions
from runtime.workers.channel import Handler
from runtime.workers.desired import Name, Version
from runtime.workers.process import Worker
from tests.house import until
from tests.runtime.cli.conftest import Pretzel
from tests.runtime.http.certificates import Authority
from tests.runtime.http.client import Client
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.workers.house import serving

ALICE, BOB = "a" * 20, "b" * 20
ROW = [0.0, 0.0, 0.0, 0.0]
#: The settings that a way does not offer, and why; docs/reference/cluster.md says so.
NOT_OFFERED: dict[str, dict[str, str]] = {
    "python": {},
    "command": {},
    "workers": {},
    "replica": {
        **dict.fromkeys(
            ("host", "port", "reuse_port"), "a replica listens at a free port of `host`"
        )
    },
}


def others(place: Path) -> ServerSettings:
    """Settings of which none has its usual value."""
    special: dict[str, Any] = {
        "host": "127.0.0.2",
        "port": 0,
        "access_log_share": 0.5,
        "trace_stages": 0.5,
    }
    special |= {"tenant_header": "x-who", "tokens": tokens(place), "answers": place / "answers"}
    authority = Authority(place)
    special |= dict(zip(("tls_cert", "tls_key"), authority.server(), strict=True))
    special |= {"tls_client_ca": authority.file, "unix_mode": "660", "default_model": "a"}
    special |= {"audit_log": place / "audit", "access_log": place / "log"}
    special |= {"log_format": "json", "log_level": "error"}
    special |= {"drain_delay": 0.01, "drain_seconds": 0.5}
    made: dict[str, Any] = {}
    for each in fields(ServerSettings):
        usual: Any = each.default
        made[each.name] = special[each.name] if each.name in special else _other(usual)
        assert made[each.name] != usual, each.name
    return ServerSettings(**made)


def _other(usual: Any) -> Any:
    return not usual if isinstance(usual, bool) else type(usual)(usual + 1000.5)


def tokens(place: Path) -> Path:
    path = place / "tokens"
    path.write_text(f"alice {ALICE}\nbob {BOB} predict\n", encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.pretzel", "b.pretzel"):
        save_plan(tmp_path / "models" / name, 1.0)
        age(tmp_path / "models" / name)
    return tmp_path / "models"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """The settings of each server that a worker, a replica or the command makes."""
    found: list[ServerSettings] = []

    class Noted(Server):
        def __init__(self, runtime: Runtime, settings: ServerSettings, **parts: Any) -> None:
            found.append(settings)
            super().__init__(runtime, settings, **parts)

    for module in ("runtime.http", "runtime.workers.process", "runtime.cluster.serving.replica"):
        monkeypatch.setattr(f"{module}.Server", Noted)
    return found


# --- ways, in this process ------------------------------------------------------------------------


class Supervised:
    """A worker's end of a channel, at whose other end everything is answered with nothing."""

    def start(self, name: str) -> None:
        """There is nothing to read."""

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(None)
        return future


@contextmanager
def worker(settings: ServerSettings, folder: Path) -> Iterator[str]:
    """The address of a worker, which is told what to do as by a supervisor."""
    handlers: list[Handler] = []

    def opened(handle: Handler, _gone: Callable[[], object]) -> Supervised:
        handlers.append(handle)
        return Supervised()

    ended, listener = Ending(), listen(settings)
    made = Worker(opened, [listener], ended)
    thread = threading.Thread(target=made.run)
    thread.start()
    port = listener.getsockname()[1]
    try:
        plan = Version(1, str(folder / "a.pretzel"))
        names = {"a": Name().having("1", plan, activate=True).to_json()}
        body = {
            "options": WorkerOptions(settings, executors=1).to_json(),
            "worker": 0,
            "workers": 1,
        }
        handlers[0]("begin", body | {"generation": 0, "names": names, "index": []}).result(60)
        handlers[0]("open", None).result(60)
        yield f"http://{settings.host}:{port}"
    finally:
        ended.set()
        thread.join(60)
        listener.close()


class Threads:
    """Starts replicas in this process."""

    def __init__(self, lease: float) -> None:
        self.lease, self.threads = lease, list[threading.Thread]()
        self.controller: Controller

    def launch(self, number: int) -> None:
        replica = Replica(number, "127.0.0.1", self.controller.address, self.lease)
        self.threads.append(threading.Thread(target=replica.run))
        self.threads[-1].start()

    def end(self, number: int) -> None:
        """It ends by itself."""

    def existing(self) -> list[int]:
        return []


@contextmanager
def cluster(settings: ServerSettings, folder: Path) -> Iterator[Controller]:
    """A controller with one replica."""
    launcher, place = Threads(5.0), folder.parent
    options = WorkerOptions(settings, executors=1, store=str(place / "store"))
    made = ClusterSettings(str(folder), str(place / "staging"), scale=Scale(1, 1), options=options)
    launcher.controller = controller = Controller(made, launcher).start()
    try:
        controller.wait_ready()
        yield controller
    finally:
        controller.stop()
        for each in launcher.threads:
            each.join(60)


# --- all settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", NOT_OFFERED)
def test_a_way_hands_every_setting_on(
    way: str, tmp_path: Path, folder: Path, made: list[ServerSettings]
) -> None:
    settings, usual = others(tmp_path), ServerSettings(port=0)
    wanted = replace(settings, **{name: getattr(usual, name) for name in NOT_OFFERED[way]})
    match way:
        case "python":
            with Runtime(executors=1) as runtime:
                made.append(Server(runtime, settings).service.settings)
        case "command":
            made.append(
                server_settings(Namespace(host="::", port=1, tokens=None, set=_texts(settings)))
            )
        case "workers":
            with worker(settings, folder):
                pass
        case "replica":
            with cluster(wanted, folder):
                pass
    assert made == [wanted]


def _texts(settings: ServerSettings) -> list[str]:
    every = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return [
        f"{name}={str(value).lower() if value in {True, False} else value}"
        for name, value in every.items()
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_makes_that_server(
    folder: Path, tmp_path: Path, pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """As far as the settings: then it is stopped."""
    wanted, found = others(tmp_path), list[object]()

    def stop(*arguments: Any, **_: object) -> None:
        found.extend(each for each in arguments if isinstance(each, ServerSettings | WorkerOptions))
        raise FlourError("that is enough")

    monkeypatch.setattr(
        "runtime.http.Server" if workers == 1 else "runtime.workers.Supervisor", stop
    )
    given = [part for text in _texts(wanted) for part in ("--set", text)]
    ran = pretzel("serve", folder, "--poll", "0", "--workers", workers, "--memory", "1G", *given)
    assert "that is enough" in ran.err
    (settings,) = found
    if isinstance(settings, WorkerOptions):
        assert (settings.memory_budget, WorkerOptions.of_json(settings.to_json())) == (
            1 << 30,
            settings,
        )
        settings = settings.settings
    assert settings == wanted


@pytest.mark.parametrize("name", NOT_OFFERED["replica"])
def test_what_a_replica_does_not_have_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    value = getattr(replace(others(tmp_path), port=9), name)
    options = WorkerOptions(ServerSettings(**{name: value}))
    with pytest.raises(ClusterError, match=NOT_OFFERED["replica"][name]):
        ClusterSettings(str(folder), str(tmp_path), options=options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lease", 0), ("lease", float("nan")), ("poll", -1), ("standby", -1), ("standby", 1.5)],
)
def test_wrong_settings_of_a_cluster_are_refused(
    name: str, value: Any, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match="a cluster cannot have such settings") as refused:
        ClusterSettings(str(folder), str(tmp_path), **{name: value})
    assert refused.value.found == f"{name}={value!r}"


@pytest.mark.parametrize("make", [Runtime, WorkerOptions])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("executors", value) for value in (0, -1, True, "2", 1.5)),
        *(("memory_budget", value) for value in (-1, True, "2G", float("nan"))),
        *(("trust_code", value) for value in ("no", 1, None)),
    ],
)
def test_wrong_options_of_a_runtime_are_refused(make: type, name: str, value: Any) -> None:
    """Also those of workers, before any of them is started."""
    with pytest.raises(ParameterError, match="a runtime cannot have such an option") as refused:
        make(**{name: value})
    assert refused.value.found == f"{name}={value!r}"


# --- who may do what ------------------------------------------------------------------------------

_ROW = json.dumps(ROW)
INFER = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 4], "data": ROW}]}
#: What may be asked, and the right that it takes; "" is for all.
ASKED = {
    ("GET", "/v2/health/live", ""): "",
    ("GET", "/v2/health/ready", ""): "",
    ("GET", "/ping", ""): "",
    ("GET", "/version", ""): "read",
    ("POST", "/predict/a", _ROW): "predict",
    ("POST", "/v2/models/a/infer", json.dumps(INFER)): "predict",
    ("POST", "/v1/models/a:predict", json.dumps({"instances": [ROW]})): "predict",
    ("GET", "/v2", ""): "read",
    ("GET", "/", ""): "read",
    ("GET", "/explain/a", ""): "read",
    ("GET", "/metrics", ""): "read",
    ("GET", "/openapi.json", ""): "read",
    ("GET", "/v2/models/a", ""): "read",
    ("GET", "/v2/models/a/route", ""): "read",
    ("POST", "/v2/repository/index", "{}"): "read",
    ("PUT", "/v2/models/a/route", '{"champion": "a@1"}'): "change",
    ("POST", "/v2/repository/models/b/unload", "{}"): "change",
    ("POST", "/v2/repository/models/b/load", "{}"): "change",
}
CLIENTS = {"": 401, "wrong" * 4: 401, ALICE: 200, BOB: 403}


def expected() -> dict[str, list[int]]:
    return {
        token: [
            200 if not right or (token == BOB and right == "predict") else status
            for right in ASKED.values()
        ]
        for token, status in CLIENTS.items()
    }


def answered(url: str) -> dict[str, list[int]]:
    """The status of each question for each client."""
    client = Client(int(url.rpartition(":")[2]))
    until(lambda: client.get("/v2/health/ready").status == 200)
    return {token: [_status(client, token, *asked) for asked in ASKED] for token in CLIENTS}


def _status(client: Client, token: str, method: str, path: str, body: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return client.ask(method, path, body.encode() or None, headers).status


def test_the_rights_of_clients_in_python(folder: Path, tmp_path: Path) -> None:
    settings = ServerSettings(port=0, tokens=tokens(tmp_path))
    with Runtime(executors=1) as runtime, Repository(folder, runtime) as repository:
        repository.load_all()
        with Server(runtime, settings, repository=repository) as server:
            assert answered(server.url) == expected()


def test_the_rights_of_clients_of_the_command(folder: Path, tmp_path: Path) -> None:
    with serving(folder, 2, "--tokens", str(tokens(tmp_path))) as served:
        assert answered(served.url) == expected()


def test_the_rights_of_clients_of_a_cluster(folder: Path, tmp_path: Path) -> None:
    """Of a replica, and of the front; who the replicas are takes a token at both."""
    settings = ServerSettings(tokens=tokens(tmp_path), max_body=2000, drain_delay=0.0)
    with cluster(settings, folder) as controller:
        (replica,) = controller.members().ready()
        assert answered(replica.url) == expected()
        assert answered(controller.front.url) == expected()
        for url in (replica.url, controller.front.url):
            client = Client(int(url.rpartition(":")[2]))
            for path in (PATH, HOMES, f"{PATH}?x=1"):
                assert {each: _status(client, each, "GET", path) for each in CLIENTS} == CLIENTS
            known = {"Authorization": f"Bearer {ALICE}"}
            assert client.post("/predict/a", b" " * 2001, known).status == 413
            with ClusterClient(url, headers=known) as asking:
                assert asking.predict("a", ROW)["top"] == 1.0
            with ClusterClient(url) as nobody, pytest.raises(ClusterError, match="needs a token"):
                nobody.predict("a", ROW)


def test_a_cluster_says_at_once_that_a_token_is_short(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_text("alice secret\n", encoding="utf-8")
    options = WorkerOptions(ServerSettings(tokens=path))
    with pytest.raises(ParameterError, match="16 characters or more") as refused:
        Controller(ClusterSettings(str(folder), str(tmp_path / "s"), options=options), Threads(1.0))
    assert (refused.value.where, refused.value.found) == (f"{path}:1", "6 characters")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tokens", "short"), "a token has 16 characters or more"),
        (("--tokens", "none"), "the tokens cannot be read"),
        (("--set", "port=9"), "a cluster's address is --host and --port"),
        (("--set", "reuse_port=true"), "a free port of"),
        (("--set", "max_body=x"), "max_body is an integer, 1 or more"),
    ],
)
def test_the_cluster_command_refuses_before_it_asks_ray(
    given: tuple[str, str],
    said: str,
    folder: Path,
    tmp_path: Path,
    pretzel: Pretzel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "short").write_text("alice secret\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    actors = "runtime.cluster.serving.ray_actors"
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.delitem(sys.modules, actors, raising=False)
    try:
        ran = pretzel("cluster", "up", folder, *given)
    finally:
        sys.modules.pop(actors, None)
    assert ran.code in {1, 2}
    assert said in ran.err
