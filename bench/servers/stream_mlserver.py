"""MLServer's path through Kafka: a scikit-learn model that answers the messages of a topic.

It prints the messages that it answered a second.
"""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from mlserver import MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters


async def main(broker: str, model: str, count: int) -> None:
    """Serve the model, send messages, read as many answers, and tell the rate."""
    settings = Settings(
        host="127.0.0.1",
        http_port=0,
        grpc_port=0,
        parallel_workers=0,
        metrics_endpoint=None,
        debug=False,
        kafka_enabled=True,
        kafka_servers=broker,
        kafka_topic_input="asked",
        kafka_topic_output="answered",
    )
    kind = "bench.servers.mlserver_model.Pickled"
    parameters = ModelParameters(uri=model)
    server = MLServer(settings)
    serving = asyncio.create_task(
        server.start([ModelSettings(name="m", implementation=kind, parameters=parameters)])
    )
    reader = AIOKafkaConsumer("answered", bootstrap_servers=broker, auto_offset_reset="earliest")
    writer = AIOKafkaProducer(bootstrap_servers=broker)
    await reader.start()
    await writer.start()
    for number, row in enumerate(np.random.default_rng(0).normal(size=(count + 1, 4)).tolist()):
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP64", "data": row}
        body = json.dumps({"id": str(number), "inputs": [tensor]}).encode()
        sent = await writer.send("asked", body, headers=[("mlserver-model", b"m")])
        while not number and not await reader.getmany(timeout_ms=2000):  # nobody reads yet
            sent = await writer.send("asked", body, headers=[("mlserver-model", b"m")])
    await sent
    ends = [(await reader.getone()).timestamp for _ in range(count)]  # of when it was answered
    await writer.stop()
    await reader.stop()
    await server.stop()
    await serving
    print(f"messages/s: {1e3 * (count - 1) / (ends[-1] - ends[0])}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
