"""The process of `IsolatedImporter`: one request per line in, one answer per line out."""

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

from objectstore import system
from runtime.repository.files import Folder
from runtime.repository.io_contract import Fil, IoContract, MLServer, Plain
from runtime.repository.listing import FolderModel
from runtime.repository.preparing import LocalImporter, Trust, error_parts
from runtime.repository.staging import Staging

_PROMISES: dict[str, type[IoContract]] = {kind.__name__: kind for kind in (Plain, MLServer, Fil)}


def main() -> None:
    """Prepare requested models until requests end; the first line says how."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    faulthandler.enable()
    with suppress(OSError):
        (system.PROC / "self" / "oom_score_adj").write_text("1000", encoding="ascii")
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of models and libraries must not mix with answers
    orders = requests.readline()
    if not orders:  # nobody needs this process
        return
    settings = json.loads(orders)
    folder = Folder(settings["root"], max_bytes=settings["max_bytes"])
    staging = Staging(settings["staging"], trust_code=settings["trust_code"])
    importer = LocalImporter(folder, staging, Trust(*settings["trust"]), exact=settings["exact"])
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=settings["idle_seconds"])
        except Empty:
            os._exit(0)
        answers.write(json.dumps(_answer(importer, staging, json.loads(line))).encode() + b"\n")


def _read(asked: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Pass on requests; their end ends the process, also in the middle of an import."""
    for line in asked:
        lines.put(line)
    os._exit(0)


def _answer(importer: LocalImporter, staging: Staging, request: dict[str, Any]) -> dict[str, Any]:
    known = None if request["known"] is None else staging.directory / request["known"]
    try:
        return {"staged": importer.prepare(_model(request["model"]), known).name}
    # Any error concerns this model only; go on with the next.
    except Exception as problem:  # noqa: BLE001
        return dict(error_parts(problem))


def _model(facts: dict[str, Any]) -> FolderModel:
    promise = dict(facts["promise"])
    contract = _PROMISES[promise.pop("kind")](**promise)
    rows = None if facts["rows"] is None else Path(facts["rows"])
    return FolderModel(**facts | {"path": Path(facts["path"]), "promise": contract, "rows": rows})
