"""Certificates of a day, made by the openssl command below a test's own folder."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path


@dataclass
class Authority:
    """Signs certificates into a folder."""

    folder: Path

    def __post_init__(self) -> None:
        self._make("ca", "/CN=tests", "-addext", "basicConstraints=critical,CA:TRUE")

    @property
    def file(self) -> Path:
        """Its own certificate."""
        return self.folder / "ca.pem"

    def sign(self, name: str, common: str = "", *alternative: str) -> tuple[Path, Path]:
        """Make a certificate and its key, by other names where it is called otherwise."""
        more = [f"subjectAltName={','.join(alternative)}"] if alternative else []
        extensions = ("basicConstraints=critical,CA:FALSE", *more)
        named = [part for each in extensions for part in ("-addext", each)]
        signing = ("-CA", self.file, "-CAkey", self.folder / "ca.key")
        return self._make(name, f"/CN={common or name}", *named, *signing)

    def server(self, name: str = "server") -> tuple[Path, Path]:
        """Make a certificate of the loopback address."""
        return self.sign(name, "localhost", "IP:127.0.0.1", "DNS:localhost")

    def _make(self, name: str, subject: str, *more: str | Path) -> tuple[Path, Path]:
        made = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-out", made[0], "-keyout", made[1])
        command = ["openssl", "req", "-x509", "-days", "1", *curve, "-subj", subject, *files, *more]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return made

    def trusted(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts it, and may have a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context

    def connection(
        self, port: int, certificate: tuple[Path, Path] | None = None
    ) -> HTTPSConnection:
        """Return a connection of such a client."""
        context = self.trusted(certificate)
        return HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
