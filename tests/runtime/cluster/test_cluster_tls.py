"""A cluster inside TLS: its front, its replicas, and those who ask them."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from runtime import Runtime
from runtime.cli import main
from runtime.cluster.serving import ClusterClient, Scale
from runtime.http import Server, ServerSettings
from runtime.http.wire.tls import context_of_peers
from tests.house import until
from tests.runtime.cluster.clusters import ROW, cluster
from tests.runtime.http.certificates import Authority
from tests.runtime.repository.folders import age, save_plan


def serial(url: str, context: ssl.SSLContext) -> Any:
    """The number of the certificate at an address."""
    place = urlsplit(url)
    with (
        socket.create_connection((place.hostname or "", place.port or 0), 30) as plain,
        context.wrap_socket(plain, server_hostname=place.hostname) as secured,
    ):
        return (secured.getpeercert() or {})["serialNumber"]


def passed_on(front: str, context: ssl.SSLContext) -> int:
    """The status of a prediction by way of the front."""
    place = urlsplit(front)
    made = HTTPSConnection(place.hostname or "", place.port, timeout=60, context=context)
    with closing(made) as connection:
        connection.request("POST", "/predict/a", b"[0, 0, 0, 0]")
        return connection.getresponse().status


def test_front_and_replicas_speak_tls_with_certificates_that_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    save_plan(tmp_path / "models" / "a.pretzel", 1.0)
    age(tmp_path / "models" / "a.pretzel")
    http = ServerSettings(
        drain_delay=0.2,
        drain_seconds=5.0,
        tls_cert=certificate,
        tls_key=key,
        tls_client_ca=authority.file,
    )
    known = authority.trusted(authority.sign("shop"))
    with cluster(tmp_path, tmp_path / "models", http=http, scale=Scale(1, 1)) as controller:
        controller.wait_ready()
        front = controller.front.url
        with ClusterClient(front, tls=known) as client:
            assert client.predict("a", ROW)["top"] == 1.0
            (replica,) = client.replicas()
        assert {urlsplit(url).scheme for url in (front, replica)} == {"https"}
        place = urlsplit(front)
        with socket.create_connection((place.hostname or "", place.port or 0), 30):
            assert passed_on(front, known) == 200, "one that is silent keeps nobody from shaking"
        for url in (front, replica):
            with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|EOF"):
                passed_on(url, authority.trusted())
        before = {serial(url, known) for url in (front, replica)}
        made = authority.server("renewed")
        made[1].replace(key)
        made[0].replace(certificate)
        until(lambda: not before & {serial(url, known) for url in (front, replica)})
        assert passed_on(front, known) == 200


def test_another_certificate_of_the_authority_is_no_peer(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, other = authority.server("own"), authority.server("other")
    context = context_of_peers(ServerSettings(tls_cert=own[0], tls_key=own[1]))
    for (certificate, key), fits in ((own, True), (other, False)):
        settings = ServerSettings(port=0, tls_cert=certificate, tls_key=key)
        with (
            Runtime(executors=1) as runtime,
            Server(runtime, settings) as server,
            ClusterClient(server.url, tls=context, attempts=1) as client,
        ):
            if fits:
                assert client.request("GET", "/v2/health/live").status == 200
            else:
                with pytest.raises(Exception, match="no replica answers"):
                    client.request("GET", "/v2/health/live")


@pytest.mark.parametrize("front", ["haproxy", "ray"])
def test_a_front_without_tls_is_refused(
    tmp_path: Path, front: str, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = Authority(tmp_path).server()
    command = ["cluster", "up", str(tmp_path), "--front", front, "--tls-cert", str(certificate)]
    assert main([*command, "--tls-key", str(key)]) == 2
    assert "--front direct has TLS" in capsys.readouterr().err
