"""Webhooks of rollouts end, whatever waits in their queue."""

from __future__ import annotations

import threading

import pytest

from runtime.rollout.webhook import WAITING, Webhook
from tests.house import until


def test_a_webhook_whose_queue_is_full_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, go_on = list[bytes](), threading.Event()

    def post(_: Webhook, body: bytes) -> bool:
        go_on.wait(30)
        taken.append(body)
        return True

    monkeypatch.setattr(Webhook, "_post", post)
    made = Webhook("http://127.0.0.1:1/x")
    for number in range(WAITING + 2):
        made.tell({"number": number})
    made.close()
    go_on.set()
    until(lambda: not any(each.name == "pretzel-webhook" for each in threading.enumerate()))
    assert len(taken) + made.lost == WAITING + 3  # the word that it ends among them
