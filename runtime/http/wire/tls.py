"""TLS by files: the context of new connections, made again when files change, and clients' names.

Connections keep the context that they began with. Files that cannot be used change nothing: the
former certificate stays, and a warning is logged.
"""

from __future__ import annotations

import os
import re
import ssl
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from flour.core.errors import ParameterError
from runtime.http.wire.problems import log
from runtime.http.wire.settings import ServerSettings

#: Protocols that are spoken inside TLS, the preferred one first.
ALPN = ("h2", "http/1.1")
#: Complaints of OpenSSL about a certificate that it can read; all others are about the key.
_WEAK = ("TOO_SMALL", "TOO_WEAK")
#: Seconds between two lines about handshakes that failed.
_QUIET_SECONDS = 5.0
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class HandshakeFailures:
    """Handshakes that failed: counted by their reason, and logged once in a few seconds."""

    def __init__(self) -> None:
        """There is none yet."""
        self.counts: Counter[str] = Counter()
        self._logged, self._unsaid = -_QUIET_SECONDS, 0

    def add(self, peer: object, problem: ssl.SSLError | str) -> None:
        """Count a failure; `peer` is the address of the client."""
        reason = problem if isinstance(problem, str) else problem.reason
        self.counts[_said(reason or "other")] += 1
        if (now := monotonic()) - self._logged < _QUIET_SECONDS:
            self._unsaid += 1
            return
        others = f"; {self._unsaid} others since the last line" if self._unsaid else ""
        self._logged, self._unsaid = now, 0
        host = peer[0] if isinstance(peer, tuple) and peer else "a client"
        log.info("a TLS handshake with %s failed: %s%s", host, problem, others)


class TlsFiles:
    """A server's certificate, its key, and the authorities of its clients' certificates."""

    def __init__(self, settings: ServerSettings, protocols: Sequence[str] = ALPN) -> None:
        """Read the files; `ParameterError` says which of them is not what it should be."""
        self._protocols = protocols
        self._certificate = str(settings.tls_cert)
        self._key = str(settings.tls_key or settings.tls_cert)
        self._authorities = str(settings.tls_client_ca or "")
        self._required, self._problem = settings.tls_client_required, ""
        self._stamps = self._stamped()
        self.context = self._made()

    def renew(self, *, forced: bool = False) -> bool:
        """Read the files again if they have changed; True if there is another context now."""
        stamps = self._stamped()
        if stamps == self._stamps and not forced:
            return False
        self._stamps = stamps
        try:
            self.context, self._problem = self._made(), ""
        except ParameterError as problem:  # they are being written, or are damaged
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.warning("the former certificate stays, as files have changed: %s", problem)
            return False
        return True

    def _stamped(self) -> list[tuple[int, int, int] | None]:
        """Stamps that change with the files; None for one that is not there."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in filter(None, (self._certificate, self._key, self._authorities)):
            try:
                status = os.stat(path)  # noqa: PTH116 (one system call, once a second)
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append(None)
        return stamps

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        # Requests say where they end, so a connection that just breaks off cuts none short.
        context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        context.set_alpn_protocols(list(self._protocols))
        self._load_certificate(context)
        if self._authorities:
            _load_authorities(context, self._authorities, "the authorities of clients")
            context.verify_mode = ssl.CERT_REQUIRED if self._required else ssl.CERT_OPTIONAL
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self._certificate)
        try:
            Path(self._key).read_bytes()
            context.load_cert_chain(self._certificate, self._key, _locked)
        except ssl.SSLError as problem:
            reason = problem.reason or str(problem)
            what, where = "this is not the key of the certificate", self._key
            hint = f"a PEM file with the key that was made with {self._certificate}"
            if any(each in reason for each in _WEAK):
                what, where = "the certificate cannot be used", self._certificate
                hint = "one with a longer key or a stronger digest"
            raise ParameterError(what, where=where, found=_said(reason), hint=hint) from problem
        except (OSError, ValueError) as problem:
            raise ParameterError(
                "the key of the certificate cannot be read",
                where=self._key,
                found=getattr(problem, "strerror", None) or str(problem),
                hint="a PEM file that this process may read",
            ) from problem


def client_context(
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    *,
    verify: bool = True,
) -> ssl.SSLContext:
    """A client's half: `ca` vouches for servers, `cert` and `key` for this client."""
    try:
        made = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None:
            made.load_cert_chain(str(cert), None if key is None else str(key), _locked)
    except (OSError, ValueError) as problem:  # those of OpenSSL, too
        raise ParameterError(
            "the files of TLS cannot be used",
            where=", ".join(str(each) for each in (ca, cert, key) if each),
            found=getattr(problem, "strerror", None) or str(problem),
            hint="PEM files: authorities, a certificate, and its key",
        ) from problem
    if not verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def context_of_peers(settings: ServerSettings) -> ssl.SSLContext:
    """A client's half for servers with the very certificate of these settings, at any address.

    It is the certificate of this client, too, where servers ask for one.
    """
    certificate = str(settings.tls_cert)
    found = _CERTIFICATE.search(Path(certificate).read_text("ascii", "replace"))
    peers = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    peers.check_hostname = False
    peers.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # None of its issuers, who have signed those of others as well.
    peers.load_verify_locations(cadata=found[0] if found else "")
    peers.load_cert_chain(certificate, settings.tls_key, _locked)
    return peers


def _load_authorities(
    context: ssl.SSLContext, path: str, what: str = "the certificate of the server"
) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as problem:  # those of OpenSSL, too
        reason = getattr(problem, "reason", None) or problem.strerror or str(problem)
        raise ParameterError(
            f"{what} cannot be read",
            where=path,
            found=_said(reason),
            hint="a PEM file of certificates",
        ) from problem


def _locked() -> str:
    """The password of a key: OpenSSL would ask for it at the terminal, and wait."""
    raise ValueError("it has a password")


def _said(reason: str) -> str:
    return reason.replace("_", " ").lower() if reason.isupper() else reason


def names_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> tuple[str, ...]:
    """The names in a client's certificate: alternative ones, then the common one."""
    certificate = None if connection is None else connection.getpeercert()
    if not certificate:
        return ()
    alternative: Any = certificate.get("subjectAltName", ())
    subject: Any = certificate.get("subject", ())
    names = [str(value) for _, value in alternative]
    parts = [part for group in subject for part in group]
    names += [str(value) for kind, value in parts if kind == "commonName"]
    return tuple(dict.fromkeys(names))
