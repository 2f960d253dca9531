"""Sample pipelines, trained, imported, verified, saved, served over HTTP and asked: the whole way.

    scripts/demo           leaves the server running until Ctrl-C
    scripts/demo --once    ends when everything has been shown

For each pipeline it prints the program's stages, and one answer of the server beside scikit-learn's
own, with what one row and a block of rows take on both sides. A graph then decides by the answers
of two of them, and a challenger of one of them is compared and promoted. An answer that differs
ends it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from demo_challenger import challenger_of, promote
from demo_client import Client, connect, tensors_of
from demo_samples import ALL, Sample

import flour
import oven
from oven.explain import explain
from runtime.verify import compare, verify

TRIES = 50
METHODS = {"label": "predict", "value": "predict", "probabilities": "predict_proba"}
#: A graph of two of the models, as it stands in a folder of models.
GRAPH = """
[inputs]
age = "number"
basket = "number"
city = "category"
channel = "category"
review = "text"

[nodes.returns]                        # a table model: will this order be sent back?
model = "orders"
reads = ["age", "basket", "city", "channel"]

[nodes.mood]                           # a text model: what does the customer say?
model = "reviews"
reads = "review"

[nodes.risk]
value = "0.6 * returns.probabilities[1] + 0.4 * mood.probabilities[0]"

[nodes.final]                          # an obvious case needs no second opinion
choose = [{ when = "returns.probabilities[1] > 0.99", then = "returns.probabilities[1]" }]
otherwise = "risk"

[outputs]
risk = "final"
call_back = "final > 0.5"
"""
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Show everything; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--once", action="store_true", help="end when everything has been shown")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        models = Path(place) / "models"
        samples = {sample.name: bring(sample, models) for sample in (make() for make in ALL)}
        challenger = challenger_of(samples["orders"], models)
        write_graph(models)
        say(f"\n=== pretzel serve {models}")
        with serving(models) as url:
            client = connect(url)
            for sample in samples.values():
                ask(sample, client)
            decide(samples, client)
            promote(url, samples["orders"], challenger, say)
            say("\nall answers are scikit-learn's")
            if not options.once:
                leave_running(url)
    return 0


def bring(sample: Sample, models: Path) -> Sample:
    """Import a pipeline, verify it on all rows, and save it into the folder of models."""
    say(f"\n=== {sample.name}: {sample.about}")
    started = time.perf_counter()
    plan = oven.bake(flour.from_sklearn(sample.pipeline, sample.rows[:5]))
    say(f"imported and baked in {1e3 * (time.perf_counter() - started):.0f} ms")
    verify(plan, sample.pipeline, sample.rows)
    say(f"verified: all {len(sample.rows)} rows answer as scikit-learn does")
    path = models / sample.name / "1" / f"{sample.name}.pretzel"
    path.parent.mkdir(parents=True)
    plan.save(path)
    say(f"saved: {path.stat().st_size:,} bytes\n{explain(plan)}")
    return sample


@contextmanager
def serving(models: Path) -> Iterator[str]:
    """The address of a server of this folder, which is a process of its own."""
    command = [sys.executable, "-m", "runtime", "serve", str(models), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line.strip()}")
        say(line.strip())
        yield found.group()
    finally:
        process.terminate()
        process.wait(30)


def ask(sample: Sample, client: Client) -> None:
    """One row and all rows, by both; an answer that differs ends the demonstration."""
    metadata = client.metadata(sample.name)
    row, rows = sample.rows[:1], sample.rows
    one, many = list(tensors_of(metadata, row)), list(tensors_of(metadata, rows))
    made = client.infer(sample.name, many)
    for name, method in METHODS.items():
        if name in made:
            bad = compare(name, made[name], getattr(sample.pipeline, method)(rows), 1e-9)
            if bad is not None:
                raise SystemExit(f"{sample.name} answers otherwise: {bad}")
    original = sample.pipeline.predict
    answer = client.infer(sample.name, one)
    first = answer["label" if "label" in answer else "value"].ravel()[0]
    say(f"\n{sample.name}, asked with {client.name}")
    times = micro(lambda: original(row)), micro(lambda: client.infer(sample.name, one))
    say(f"  scikit-learn, in process  {original(row)[0]!s:>18}   {times[0]}")
    say(f"  pretzel, over HTTP        {first!s:>18}   {times[1]}")
    theirs, ours = micro(lambda: original(rows)), micro(lambda: client.infer(sample.name, many))
    say(f"  {len(rows)} rows: scikit-learn {theirs.strip()}, pretzel {ours.strip()}")


def write_graph(models: Path) -> None:
    """Put the graph into the folder of models."""
    say(f"\n=== decision: a graph of two of these models\n{GRAPH}")
    (models / "decision").mkdir()
    (models / "decision" / "graph.toml").write_text(GRAPH, encoding="utf-8")


def decide(samples: dict[str, Sample], client: Client) -> None:
    """Ask the graph, and work the same out by hand with scikit-learn."""
    orders, reviews = samples["orders"], samples["reviews"]
    rows = orders.rows.assign(review=np.resize(reviews.rows, len(orders.rows)))
    made = client.infer("decision", list(tensors_of(client.metadata("decision"), rows)))
    returns = orders.pipeline.predict_proba(orders.rows)[:, 1]
    mood = reviews.pipeline.predict_proba(rows["review"].tolist())[:, 0]
    risk = np.where(returns > 0.99, returns, 0.6 * returns + 0.4 * mood)
    bad = compare("risk", made["risk"], risk, 1e-9)
    if bad is not None:
        raise SystemExit(f"the graph answers otherwise: {bad}")
    say(f"\ndecision, a graph, asked with {client.name}")
    say(f"  {len(risk)} rows: risk {made['risk'].ravel()[0]:.3f} and so on, as by hand")


def leave_running(url: str) -> None:
    """Say how to go on by hand, and wait."""
    say(f"""
The server goes on until Ctrl-C. Some things to ask it:

  curl -s {url}/v2/models
  curl -s {url}/v2/models/reviews
  curl -s {url}/predict/reviews -d '"the soup was lovely"'
  curl -s {url}/predict/orders -d \\
    '{{"age": 41, "basket": 75.5, "city": "Oslo", "channel": "web"}}'
  curl -s {url}/v2/models/reviews/infer -d \\
    '{{"inputs": [{{"name": "X", "datatype": "BYTES", "shape": [1], "data": ["tasty pizza"]}}]}}'
""")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        say("\nended")


def micro(call: Callable[[], Any]) -> str:
    """The median time of a call, as text."""
    times = []
    for _ in range(TRIES):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return f"{1e6 * float(np.median(times)):8.1f} us"


def say(text: object) -> None:
    """One line of the demonstration."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
