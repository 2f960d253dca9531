"""A FastStream worker that answers messages of a Redis stream by scikit-learn, one after another.

It prints the messages that it answered a second.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from pathlib import Path

import numpy as np
from faststream.redis import RedisBroker, StreamSub


async def main(url: str, model: str, count: int) -> None:
    """Send messages as FastStream does, answer all of them, and tell the rate."""
    answers = pickle.loads(Path(model).read_bytes()).predict_proba  # noqa: ASYNC240 (once)
    broker, done, ends = RedisBroker(url, logger=None), asyncio.Event(), list[float]()

    @broker.subscriber(stream=StreamSub("asked", group="g", consumer="c", max_records=500))  # type: ignore[untyped-decorator]  # the library is in an environment of its own
    @broker.publisher(stream="answered")  # type: ignore[untyped-decorator]  # as above
    async def answer(row: list[float]) -> dict[str, list[float]]:
        found = answers([row])[0].tolist()
        ends.append(time.perf_counter())
        if len(ends) == count:
            done.set()
        return {"probabilities": found}

    await broker.start()
    for row in np.random.default_rng(0).normal(size=(count, 4)).tolist():
        await broker.publish(row, stream="asked")
    await done.wait()
    await broker.stop()
    print(f"messages/s: {(len(ends) - 1) / (ends[-1] - ends[0])}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
