"""Exports and onnxruntime-web in the same page of Chromium: bytes, loading, a row.

npm fetches onnxruntime-web once, into `.cache`; where it cannot, or there is no Chromium, that is
printed, and there are no figures. Both load from a server on this machine, and answer row by row in
turns; times are the least of many short rounds.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.goal import Goal
from bench.machine import ROOT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from oven import Plan

_VERSION, _SECONDS = "1.30.0", 180.0
_PEER = ROOT / ".cache" / f"onnxruntime-web-{_VERSION}"
#: The files that a page needs of it to answer on the processor.
_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
_ROWS = 20


class Side(NamedTuple):
    """One of both in the page."""

    kilobytes: float
    #: Until it can answer.
    milliseconds: float
    nanoseconds: float


def beside(title: str, plan: Plan, rows: NDArray[np.float64], package: Path) -> Iterator[Goal]:
    """Goals of a package in a browser, of onnxruntime-web's figures."""
    missing = _missing()
    if missing:
        print(f"{title}: onnxruntime-web in Chromium: NOT MEASURED: {missing}", flush=True)
        return
    ours, peers = measured(plan, rows, package)
    for name, side in {"ours": ours, f"onnxruntime-web {_VERSION}": peers}.items():
        figures = "{:,.0f} KB, loads in {:,.0f} ms, {:,.0f} ns a row".format(*side)
        print(f"{title}: in Chromium, {name}: {figures}", flush=True)
    limits = {"bytes": 0.05, "load": 0.5, "a row": 1.0}
    for (name, limit), a, b in zip(limits.items(), ours, peers, strict=True):
        yield Goal(f"{title}: {name}, of onnxruntime-web's, x", a / b, limit, at_most=True)


def _missing() -> str:
    """The tools that are missing, as text; empty if none is."""
    if shutil.which("chromium") is None:
        return "there is no Chromium (Debian: apt install chromium)"
    if not all((_PEER / name).is_file() for name in _FILES):
        with TemporaryDirectory(prefix="pretzel-npm-") as folder:
            command = ["npm", "pack", "--silent", f"onnxruntime-web@{_VERSION}"]
            try:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
            except (OSError, subprocess.SubprocessError) as problem:
                return f"npm does not fetch it: {problem}"[:120]
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                archive.extractall(folder, filter="data")
            _PEER.mkdir(parents=True, exist_ok=True)
            for name in _FILES:
                shutil.copy(Path(folder) / "package" / "dist" / name, _PEER)
    return ""


def measured(plan: Plan, rows: NDArray[np.float64], package: Path) -> tuple[Side, Side]:
    """Figures of ours, and of onnxruntime-web with the same plan as an ONNX model."""
    import pretzel

    with TemporaryDirectory(prefix="pretzel-web-") as name:
        folder = Path(name)
        ours, peer = folder / "ours", folder / "peer"
        shutil.copytree(package, ours)
        shutil.copytree(_PEER, peer)
        (peer / "model.onnx").write_bytes(pretzel.to_onnx(pretzel.compile(plan)))
        (folder / "index.html").write_text(_PAGE, encoding="utf-8")
        (folder / "rows.json").write_text(json.dumps(rows[:_ROWS].tolist()), encoding="utf-8")
        answer = _in_chromium(folder)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        assert answer["apart"] < 1e-6, "both have the same answers"
        wasm = (each for each in ours.glob("*.wasm"))
        sizes = _size([ours / "index.js", *wasm]), _size(list(peer.iterdir()))
    return Side(sizes[0], *answer["ours"]), Side(sizes[1], *answer["peer"])


def _size(files: list[Path]) -> float:
    return sum(each.stat().st_size for each in files) / 1000


def _in_chromium(folder: Path) -> dict[str, Any]:
    """The figures that the page of a folder sends back."""
    with (
        _served(folder) as (url, answers),
        TemporaryDirectory(prefix="pretzel-", ignore_cleanup_errors=True) as profile,
    ):
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command = ["chromium", *flags, "--disable-background-networking", url]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as browser:
            try:
                return answers.get(timeout=_SECONDS)
            finally:
                browser.terminate()
                browser.wait(timeout=30)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[str, queue.Queue[dict[str, Any]]]]:
    """A server of a folder on this machine, and what is posted to it."""
    answers: queue.Queue[dict[str, Any]] = queue.Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed between goals."""

    Handler.extensions_map |= {".mjs": "text/javascript", ".wasm": "application/wasm"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_PAGE = """\
<!doctype html><meta charset="utf-8"><script type="module">
const post = (value) => fetch("/", { method: "POST", body: JSON.stringify(value) });
async function loaded(load) {
  const start = performance.now();
  return [await load(), performance.now() - start];
}
async function least(rounds, calls, ways) {
  const best = ways.map(() => Infinity);
  for (let round = 0; round < rounds; round++) {
    for (const [k, way] of ways.entries()) {
      const start = performance.now();
      await way(calls[k]);
      best[k] = Math.min(best[k], ((performance.now() - start) * 1e6) / calls[k]);
    }
  }
  return best;
}
try {
  const rows = (await (await fetch("rows.json")).json()).map((row) => new Float64Array(row));
  const [ours, ourLoad] = await loaded(async () => (await import("./ours/index.js")).load());
  const [[ort, session], peerLoad] = await loaded(async () => {
    const ort = await import("./peer/ort.wasm.bundle.min.mjs");
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = { wasm: new URL("./peer/ort-wasm-simd-threaded.wasm", location).href };
    return [ort, await ort.InferenceSession.create("./peer/model.onnx")];
  });
  const asked = (row) => session.run({ X: new ort.Tensor("float64", row, [1, row.length]) });
  let apart = 0;
  for (const row of rows) {
    const { probabilities } = await asked(row);
    const own = ours.predict({ X: row }).probabilities;
    const differences = probabilities.data.map((value, k) => Math.abs(value - own[k]));
    apart = Math.max(apart, ...differences);
  }
  const [own, peer] = await least(40, [2000, 100], [
    (calls) => { for (let k = 0; k < calls; k++) ours.predict({ X: rows[k % rows.length] }); },
    async (calls) => { for (let k = 0; k < calls; k++) await asked(rows[k % rows.length]); },
  ]);
  await post({ apart, ours: [ourLoad, own], peer: [peerLoad, peer] });
} catch (problem) {
  await post({ error: String(problem) });
}
</script>
"""
