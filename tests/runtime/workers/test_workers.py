"""Several workers on one port: in step, replaced when they die, and gone when they should be."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import oven
from oven.plans import background
from tests.house import until
from tests.oven.plans.test_background import unseen
from tests.runtime.http.certificates import Authority
from tests.runtime.http.test_unix_socket import ask
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.workers.house import ROW, Askers, Served, alive, serving

WORKERS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name, offset in (("a", 1.0), ("b", 2.0)):
        save_plan(made / f"{name}.pretzel", offset)
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, WORKERS, "--poll", "0.05") as made:
        yield made


def tops(served: Served, name: str, count: int = 12, wait: float = 60.0) -> set[object]:
    """What many new connections are answered with; each may be another worker's."""
    found = [served.ask(f"/predict/{name}", ROW, wait) for _ in range(count)]
    return {body["top"] if status == 200 else status for status, body in found}


def quick(served: Served) -> bool:
    """Whether many new connections are answered soon, each of them."""
    with suppress(OSError):
        return tops(served, "b", 24, wait=2.0) == {2.0}
    return False


def test_it_is_told_when_all_have_their_code(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(12):
        plan = oven.bake(unseen(41 + number), background=background.NEVER)
        plan.save(folder / f"new{number}.pretzel")
    with serving(folder, WORKERS, PRETZEL_CACHE=str(tmp_path / "code")) as served:
        until(lambda: any(event["kind"] == "compiled" for event in served.events))
        (event,) = (event for event in served.events if event["kind"] == "compiled")
        assert re.fullmatch(r"\d+ plans?", event["reason"])
        assert event["seconds"] > 0


def test_a_new_version_is_everybodys(served: Served, folder: Path) -> None:
    path = folder / "a.pretzel"
    with Askers(served.port, 4, "/predict/a", fresh=True) as askers:
        for offset in (3.0, 4.0, 5.0):
            save_plan(path, offset)
            age(path)
            until(lambda offset=offset: tops(served, "a") == {offset}, "not everybody followed")  # type: ignore[misc]
    assert not askers.lost + askers.untaken
    assert {status for _, status, _ in askers.answers} == {200}
    answers = [body["top"] for _, _, body in askers.answers]
    assert set(answers) <= {1.0, 3.0, 4.0, 5.0}


def test_a_damaged_plan_harms_nobody(served: Served, folder: Path) -> None:
    damaged = folder / "b.pretzel"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) // 2))
    age(damaged)
    until(lambda: any(e["name"] == "b" for e in served.of("refused")), "it was not noticed")
    assert tops(served, "b") == {2.0}
    until(
        lambda: any(
            "older" in each["reason"] for each in served.ask("/v2/repository/index", {})[1]
        ),
        "the index does not say so",
    )
    until(lambda: served.ask("/v2/health/ready")[1] == {"ready": True})
    damaged.write_bytes(whole)
    age(damaged)
    assert served.ask("/v2/repository/models/b/load", {})[0] == 200


def test_a_killed_worker_is_replaced(served: Served) -> None:
    before = served.workers()
    with (
        Askers(served.port, 4, "/predict/b") as kept,
        Askers(served.port, 2, "/predict/b", fresh=True) as fresh,
    ):
        until(lambda: all(len(each.answers) > 25 for each in (kept, fresh)), "nobody is answered")
        os.kill(before[0], signal.SIGKILL)
        until(lambda: served.workers()[0] != before[0], "it was not replaced")
        counts = [len(each.answers) for each in (kept, fresh)]
        until(
            lambda: all(
                len(each.answers) > count + 25
                for each, count in zip((kept, fresh), counts, strict=True)
            ),
            "somebody is answered no more",
        )
    # Only connections that the dead one had taken are lost, each once.
    assert len(kept.lost) <= 4
    assert len(fresh.untaken) <= 2
    for askers in (kept, fresh):
        assert {(status, body["top"]) for _, status, body in askers.answers} == {(200, 2.0)}
    until(lambda: served.ask("/v2/health/ready")[1] == {"ready": True})
    assert served.workers()[1] == before[1]
    assert any("SIGKILL" in each["reason"] for each in served.of("ended"))
    assert tops(served, "b") == {2.0}


def test_one_that_is_asked_to_end_loses_nothing(served: Served) -> None:
    before = served.workers()
    with (
        Askers(served.port, 4, "/predict/b", fresh=True) as fresh,
        Askers(served.port, 4, "/predict/b") as kept,
    ):
        until(lambda: all(len(each.answers) > 25 for each in (kept, fresh)), "nobody is answered")
        os.kill(before[1], signal.SIGTERM)
        until(lambda: served.workers()[1] != before[1], "it was not replaced")
    assert not fresh.lost + fresh.untaken + kept.lost + kept.untaken
    assert {status for _, status, _ in (*fresh.answers, *kept.answers)} == {200}


def test_one_that_hangs_holds_nobody_up_for_long(served: Served) -> None:
    victim = served.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        # It is noticed after some seconds; from then on, not one request in many waits for it.
        until(lambda: quick(served), "requests wait for it")
    finally:
        os.kill(victim, signal.SIGCONT)
    until(lambda: tops(served, "b", 2) == {2.0}, "it does not come back")


def test_the_level_of_the_log_reaches_those_that_were_away(served: Served) -> None:
    def everybody_has(level: str) -> bool:
        return {served.ask("/v2/log-level")[1]["level"] for _ in range(12)} == {level}

    before = served.workers()
    for level, number, away in (("debug", 0, signal.SIGKILL), ("error", 1, signal.SIGSTOP)):
        os.kill(served.workers()[number], away)
        if away == signal.SIGSTOP:  # it is asked nothing any more when that was noticed
            until(lambda: quick(served), "requests wait for it")
        assert served.ask("/v2/log-level", {"level": level})[0] == 200
        if away == signal.SIGSTOP:
            os.kill(before[1], signal.SIGCONT)
        else:
            until(lambda: served.workers()[0] != before[0], "it was not replaced")
        until(partial(everybody_has, level))


def test_reload_storm(served: Served, folder: Path) -> None:
    """Many changes under load: every answer is one that was right, and the last one stays."""
    path = folder / "a.pretzel"
    with Askers(served.port, 4, "/predict/a") as askers:
        for turn in range(10):
            save_plan(path, 10.0 + turn)
            age(path)
            assert served.ask("/v2/repository/models/a/load", {})[0] == 200
            assert tops(served, "a", 4) == {10.0 + turn}
            if turn == 5:
                os.kill(served.workers()[1], signal.SIGKILL)
    until(lambda: tops(served, "a", 8) == {19.0}, "somebody is behind")
    assert {status for _, status, _ in askers.answers} == {200}
    assert tops(served, "b", 4) == {2.0}
    assert len(askers.lost) <= 4


def test_the_end_loses_nothing(folder: Path) -> None:
    with serving(folder, WORKERS) as served:
        with Askers(served.port, 4, "/predict/b") as askers:
            until(lambda: len(askers.answers) > 50, "nobody is answered")
            workers = served.workers()
            assert served.stop() == 0
        assert not askers.lost
        assert {status for _, status, _ in askers.answers} == {200}
        assert not any(alive(each) for each in workers.values())


def test_workers_end_when_the_supervisor_is_killed(folder: Path, tmp_path: Path) -> None:
    with serving(folder, WORKERS, TMPDIR=str(tmp_path)) as served:
        workers = served.workers().values()
        assert list(tmp_path.iterdir()) != []
        served.process.kill()
        until(lambda: not any(alive(each) for each in workers), "workers are left behind")
        assert [each for each in tmp_path.iterdir() if each.name.startswith("pretzel")] == []


def test_all_renew_their_certificate_on_a_signal(folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()

    def serials(port: int) -> set[object]:
        """The certificates that many new connections are shown."""
        context, found = authority.trusted(), set[object]()
        for _ in range(12):
            plain = socket.create_connection(("127.0.0.1", port), 60)
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                found.add((secured.getpeercert() or {}).get("serialNumber"))
        return found

    more = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(folder, WORKERS, *more) as served:
        kept = authority.connection(served.port)
        first = serials(served.port)
        kept.request("GET", "/v2")
        assert (kept.getresponse().read()[:1], len(first)) == (b"{", 1)
        authority.server()
        served.process.send_signal(signal.SIGHUP)
        until(lambda: not serials(served.port) & first, "a worker keeps its certificate")
        kept.request("GET", "/v2")
        assert kept.getresponse().status == 200
        kept.close()
        assert served.url.startswith("https://")


def test_all_answer_at_one_path(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "pretzel.sock"
    with serving(folder, WORKERS, "--unix", str(path)) as served:
        assert served.url == f"unix:{path}"
        for process in (*served.workers().values(), None):  # others answer for one that was killed
            for _ in range(12):
                assert ask(path, b"GET /v2/models HTTP/1.1\r\nhost: x\r\n\r\n").status == 200
            if process is not None:
                os.kill(process, signal.SIGKILL)
        assert served.stop() == 0
    assert not path.exists()
