"""What `bench.experiments.homes` measures, in the environment that has Ray; prints JSON."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flour
import oven
from bench.experiments.cluster_load import until
from bench.experiments.cluster_on_ray import deployed, status
from bench.ray_nodes import RayNodes
from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale
from runtime.cluster.serving.bodies import Homes
from runtime.cluster.serving.homes import sizes_in
from runtime.http import ServerSettings
from runtime.workers import WorkerOptions

MODELS, GROUPS, NODES = 240, 12, 3
WORDS, DOCUMENTS, LENGTH = 4000, 60, 80
#: What each node has room for, of all models' bytes; as many of its models has the peer.
ROOM = 0.45
REQUESTS, WARM, THREADS = 3000, 3000, 8
_METRIC = "pretzel_cold_hits_total"


class Way(NamedTuple):
    """How requests find a model: a call of one, and how many were loaded so far."""

    ask: Callable[[int, str], object]
    loads: Callable[[], float]


def save_all(folder: Path) -> list[str]:
    """Models of texts; those of a group have their words in common. Returns texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    words = np.array([f"{n:x}word{n * n % 997}" for n in range(GROUPS * WORDS)])
    texts = []
    for group in range(GROUPS):
        own = words[group * WORDS : (group + 1) * WORDS]
        drawn = [" ".join(rng.choice(own, LENGTH)) for _ in range(DOCUMENTS)]
        counted = TfidfVectorizer(vocabulary=sorted(own)).fit(drawn)
        features = counted.transform(drawn)
        for number in range(group, MODELS, GROUPS):
            model = LogisticRegression(max_iter=20, C=1.0 + number)
            model.fit(features, rng.random(DOCUMENTS) > 0.5)
            whole = make_pipeline(counted, model)
            (folder / f"m{number}.pickle").write_bytes(pickle.dumps(whole))
            path = folder / "plans" / f"m{number}.pretzel"
            oven.bake(flour.from_sklearn(whole)).save(path, durable=False)
            os.utime(path, (time.time() - 60, time.time() - 60))
        texts.append(drawn[0])
    return texts


def measured(way: Way, texts: list[str], asked: list[int]) -> tuple[float, float, float]:
    """Loads in 1,000 requests, requests a second, and the slowest of 100 requests."""

    def one(number: int) -> float:
        began = time.perf_counter()
        way.ask(number, texts[number % GROUPS])
        return time.perf_counter() - began

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, asked[:WARM]))
        time.sleep(6.0)  # homes are looked at again after five seconds
        list(pool.map(one, asked[:WARM]))
        before, began = way.loads(), time.perf_counter()
        seconds = list(pool.map(one, asked[WARM:]))
        rate = REQUESTS / (time.perf_counter() - began)
    return 1000 * (way.loads() - before) / REQUESTS, rate, float(np.quantile(seconds, 0.99))


@contextmanager
def ours(client: ClusterClient) -> Iterator[Way]:
    """A cluster's client."""

    def loads() -> float:
        lines = client.request("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(_METRIC))

    with client:
        yield Way(lambda number, text: client.predict(f"m{number}", [text]), loads)


@contextmanager
def multiplexed(folder: Path) -> Iterator[Way]:
    """Ray Serve's own way, with pickles of the pipelines."""
    import ray
    from ray import serve

    class Count:
        loads = 0

        def add(self) -> None:
            self.loads += 1

        def get(self) -> int:
            return self.loads

    count: Any = ray.remote(Count).options(num_cpus=0).remote()
    held: Any = serve.multiplexed(max_num_models_per_replica=int(ROOM * MODELS))

    class Models:
        @held  # type: ignore[untyped-decorator]  # Ray may be missing where types are checked
        async def model(self, name: str) -> Any:
            await count.add.remote()
            return pickle.loads((folder / f"{name}.pickle").read_bytes())

        async def __call__(self, text: str) -> float:
            model = await self.model(serve.get_multiplexed_model_id())
            return float(model.predict_proba([text])[0, 1])

    many: Any = serve.deployment(num_replicas=NODES, ray_actor_options={"num_cpus": 0.5})(Models)
    handle: Any = serve.run(many.bind(), name="multiplexed", route_prefix=None)

    def ask(number: int, text: str) -> object:
        return handle.options(multiplexed_model_id=f"m{number}").remote(text).result(timeout_s=60)

    try:
        yield Way(ask, lambda: float(ray.get(count.get.remote())))
    finally:
        serve.shutdown()


def main() -> None:
    """Measure everything, and print it."""
    rng = np.random.default_rng(1)
    popular = 1.0 / (1.0 + rng.permutation(MODELS))
    asked = rng.choice(MODELS, WARM + REQUESTS, p=popular / popular.sum()).tolist()
    with tempfile.TemporaryDirectory() as directory, closing(RayNodes(None, 4)):
        place = Path(directory)
        (place / "plans").mkdir()
        texts = save_all(place)
        sizes = [sizes_in(str(path)) for path in (place / "plans").glob("*.pretzel")]
        whole = sum({key: size for each in sizes for key, size in each.items()}.values())
        settings = ClusterSettings(
            str(place / "plans"),
            str(place / "staging"),
            scale=Scale(NODES, NODES),
            options=WorkerOptions(
                ServerSettings(port=0), executors=1, memory_budget=int(ROOM * whole), owner="homes"
            ),
            poll=0.0,
        )
        ways = {}
        with multiplexed(place) as way:
            ways["@serve.multiplexed"] = measured(way, texts, asked)
        with deployed(settings, "homes") as actor:
            front = status(actor)["front"]
            seed = ClusterClient(front)
            until(lambda: seed.members().homes)
            without = ClusterClient(look=seed.members, homes=Homes)
            for name, client in (("in turn", without), ("homes", ClusterClient(front))):
                with ours(client) as way:
                    ways[name] = measured(way, texts, asked)
            seed.close()
    found = {"models": MODELS, "nodes": NODES, "room": ROOM, "requests": REQUESTS, "ways": ways}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
