"""The heads of responses: the status line and the headers, with the date of the second.

Most responses of a second differ in their length only, and refusals under load not even in that.
So their heads are made once a second.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from runtime.http.wire.messages import JSON, Response
from runtime.http.wire.problems import LATE

_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Heads:
    """Makes the heads of a server's responses."""

    __slots__ = ("_date", "_late", "_usual")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take the time anew; called once a second."""
        self._date = formatdate(usegmt=True)
        self._late = b""
        usual = f"HTTP/1.1 200 OK\r\ndate: {self._date}\r\ncontent-type: {JSON}\r\ncontent-length: "
        self._usual = usual.encode()

    def head(self, response: Response, *, close: bool) -> bytes:
        """The head of a response; `close` if it is the last one of its connection."""
        if response.status == 200 and response.content_type is JSON and not response.headers:
            end = b"\r\nconnection: close\r\n\r\n" if close else b"\r\n\r\n"
            return b"%b%d%b" % (self._usual, len(response.body), end)
        if response is LATE and not close:
            self._late = self._late or self._any(response, close=False)
            return self._late
        return self._any(response, close=close)

    def _any(self, response: Response, *, close: bool) -> bytes:
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Other')}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.status != 204:
            lines += [
                f"content-type: {response.content_type}",
                f"content-length: {len(response.body)}",
            ]
        if close:
            lines.append("connection: close")
        lines.append(f"date: {self._date}")
        return "\r\n".join((*lines, "\r\n")).encode("latin-1")
