"""First answers of a new process: the event loop imports no library.

That takes some tenths of a second, and nobody else would be answered meanwhile.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import flour
import oven
from tests.house import run_python
from tests.runtime.plans import WORDS, documents, record_flow, text_flow

CODE = r"""
import json, sys, threading, urllib.request
from pathlib import Path
from runtime import Runtime
from runtime.http import Server, ServerSettings

imported, folder = set(), Path(sys.argv[1])

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name == "pretzel-http":
            imported.add(name.partition(".")[0])

def ask(path, body, **headers):
    asked = urllib.request.Request(server.url + path, body, headers)
    with urllib.request.urlopen(asked) as answer:
        return answer.read()

sys.meta_path.insert(0, Finder())
with Runtime(executors=1) as runtime:
    for name in ("counts", "text", "record"):
        runtime.register(name, folder / f"{name}.plan", background=False)
    text, rows = (folder / "text.json").read_bytes(), (folder / "rows.arrow").read_bytes()
    given = {"name": "document", "shape": [1], "datatype": "BYTES", "data": [json.loads(text)]}
    why = json.dumps({"inputs": [given], "parameters": {"explain": "score"}}).encode()
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        ask("/predict/counts", text)
        assert b"words" in ask("/v2/models/text/infer", why)
        wanted = {"accept": "application/vnd.apache.arrow.stream"}
        assert ask("/predict/counts", text, **wanted)[:4] == b"\xff" * 4
        assert ask("/predict/record", rows)[:4] == b"\xff" * 4
        assert ask("/predict/record", rows)[:4] == b"\xff" * 4
large = {"flour", "oven", "pandas", "pyarrow", "scipy", "sklearn"}
assert {"pandas", "pyarrow", "scipy"} <= sys.modules.keys()
print(json.dumps(sorted(large & imported)))
"""


def test_event_loops_import_no_library(tmp_path: Path) -> None:
    """Sparse answers are scipy's, words have a plan of their own, and pyarrow asks pandas."""
    counts = flour.text("document").tokenize().word_ngrams(WORDS, 1, 1)
    made = {"counts": flour.outputs(counts=counts), "text": text_flow(1), "record": record_flow()}
    for name, flow in made.items():
        oven.bake(flow).save(tmp_path / f"{name}.plan")
    (tmp_path / "text.json").write_text(json.dumps(documents(1)[0]))
    rows = pa.table({"age": [1.0, 2.0], "income": [2.0, 3.0], "city": ["Oslo", "Köln"]})
    with pa.ipc.new_stream(str(tmp_path / "rows.arrow"), rows.schema) as stream:
        stream.write_table(rows)
    assert run_python(CODE, str(tmp_path)).strip() == "[]"
