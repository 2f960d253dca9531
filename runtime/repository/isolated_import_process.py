"""The process that prepares models for `Apart`: a request a line in, an answer a line out."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from runtime.repository.files import Folder
from runtime.repository.io_contract import Fil, IoContract, MLServer, Plain
from runtime.repository.listing import Model
from runtime.repository.preparing import Here, told
from runtime.repository.staging import Staging

_PROMISES: dict[str, type[IoContract]] = {kind.__name__: kind for kind in (Plain, MLServer, Fil)}


def main(orders: str) -> None:
    """Prepare what is asked for until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    faulthandler.enable()
    _go_first()
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what models and libraries print is no answer
    told_first = json.loads(orders)
    folder = Folder(told_first["root"], max_bytes=told_first["max_bytes"])
    staging = Staging(told_first["staging"])
    here = Here(folder, staging, trust_pickle=told_first["trust_pickle"], exact=told_first["exact"])
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(asked, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=told_first["idle_seconds"])
        except Empty:
            os._exit(0)
        answers.write(json.dumps(_answer(here, staging, json.loads(line))).encode() + b"\n")


def _go_first() -> None:
    """Where memory runs out, this is what the system should end, and not a server."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _read(asked: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Hand requests on; the end of them ends the process, whatever it does."""
    for line in asked:
        lines.put(line)
    os._exit(0)


def _answer(here: Here, staging: Staging, asked: dict[str, Any]) -> dict[str, Any]:
    known = None if asked["known"] is None else staging.directory / asked["known"]
    try:
        return {"staged": here.prepare(_model(asked["model"]), known).name}
    # Whatever it is, it is about this model; the next one may be well.
    except Exception as problem:  # noqa: BLE001
        return dict(told(problem))


def _model(facts: dict[str, Any]) -> Model:
    promise = dict(facts["promise"])
    made = _PROMISES[promise.pop("kind")](**promise)
    rows = None if facts["rows"] is None else Path(facts["rows"])
    return Model(**facts | {"path": Path(facts["path"]), "promise": made, "rows": rows})
