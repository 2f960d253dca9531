"""Clients of gRPC as they come, against a server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient import grpc as triton
from tritonclient.grpc import aio as triton_aio
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.grpc import schemas
from tests.house import ROOT
from tests.runtime.http.conftest import Folder, filled

pytestmark = pytest.mark.integrations

INFER = "/inference.GRPCInferenceService/ModelInfer"


@contextmanager
def serving(**more: object) -> Iterator[tuple[Server, np.ndarray, np.ndarray]]:
    """A server, rows, and their labels."""
    with Runtime(executors=1) as runtime:
        original, rows = filled(runtime)
        settings = ServerSettings(port=0, max_unread=0.0, **more)  # type: ignore[arg-type]
        with Server(runtime, settings, repository=Folder()) as server:
            yield server, rows, original.predict(rows)


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    with serving() as (server, rows, labels):
        yield f"127.0.0.1:{server.port}", rows, labels


def tensor(rows: np.ndarray, datatype: str = "FP64") -> triton.InferInput:
    made = triton.InferInput("X", [*rows.shape], datatype)
    made.set_data_from_numpy(rows)
    return made


def test_fields_are_those_of_the_published_messages() -> None:
    for name, message in (
        schemas.pool().FindFileByName("inference.proto").message_types_by_name.items()
    ):
        published = service_pb2.DESCRIPTOR.message_types_by_name.get(name)
        published = published or model_config_pb2.DESCRIPTOR.message_types_by_name.get(name)
        if published is None:  # theirs is inside another message
            (published,) = (
                each.nested_types_by_name[name]
                for each in service_pb2.DESCRIPTOR.message_types_by_name.values()
                if name in each.nested_types_by_name
            )
        for field in message.fields:
            other = published.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), (name, field.name)
            assert field.is_repeated == other.is_repeated


def test_triton_asks_everything(house: tuple[str, np.ndarray, np.ndarray]) -> None:
    url, rows, labels = house
    with triton.InferenceServerClient(url) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert [client.is_model_ready(each) for each in ("iris", "nobody")] == [True, False]
        assert client.get_server_metadata().name == "pretzel"
        assert client.get_model_metadata("iris").inputs[0].shape == [-1, 4]
        assert client.get_model_config("iris").config.backend == "pretzel"
        assert {each.name for each in client.get_model_repository_index().models} == {
            "iris",
            "spare",
        }
        client.load_model("spare")
        client.unload_model("spare")
        answer = client.infer("iris", [tensor(rows)], request_id="7")
        assert answer.get_response().id == "7"
        assert answer.as_numpy("label").astype(str).tolist() == labels.tolist()
        wanted = [triton.InferRequestedOutput("probabilities", class_count=1)]
        (top,) = client.infer("iris", [tensor(rows[:1])], outputs=wanted).as_numpy("probabilities")[
            0
        ]
        assert top.decode().endswith(labels[0])
        texts = triton.InferInput("document", [2], "BYTES")
        texts.set_data_from_numpy(np.array(["schön", "b"], object))
        assert client.infer("text", [texts]).as_numpy("score").shape == (2, 1)
        plain = triton.InferInput("rows", [1], "BYTES")
        plain.set_data_from_numpy(np.array([json.dumps(rows.tolist()).encode()], object))
        answer = client.infer("iris", [plain], parameters={"content_type": "application/json"})
        told = json.loads(answer.as_numpy("rows")[0])
        assert [each["label"] for each in told] == labels.tolist()
        assert client.get_inference_statistics("iris").model_stats[0].inference_count >= len(rows)
        with pytest.raises(InferenceServerException, match="there is nothing here") as refused:
            client.get_trace_settings("iris")
        assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


def test_large_messages_packed_or_not(house: tuple[str, np.ndarray, np.ndarray]) -> None:
    url, rows, labels = house
    many = np.tile(rows, (400, 1))
    with triton.InferenceServerClient(url) as client:
        for packing in (None, "gzip"):
            answer = client.infer("iris", [tensor(many)], compression_algorithm=packing)
            assert answer.as_numpy("label").astype(str).tolist() == labels.tolist() * 400


def test_a_stream_of_triton(house: tuple[str, np.ndarray, np.ndarray]) -> None:
    url, rows, labels = house
    heard: list[tuple[object, object]] = []
    over = threading.Event()

    def hear(result: triton.InferResult, error: InferenceServerException) -> None:
        heard.append((result and result.as_numpy("label")[0].decode(), error))
        if len(heard) == len(rows) + 1:
            over.set()

    with triton.InferenceServerClient(url) as client:
        client.start_stream(hear)
        for row in rows[:50]:
            client.async_stream_infer("iris", [tensor(row[None])])
        client.async_stream_infer("nobody", [tensor(rows[:1])])
        for row in rows[50:]:
            client.async_stream_infer("iris", [tensor(row[None])])
        assert over.wait(30.0)
        client.stop_stream()
    assert "nothing is registered" in str(heard.pop(50)[1])
    assert [label for label, _ in heard] == labels.tolist()


def test_many_calls_at_once_of_triton_and_grpcio(house: tuple[str, np.ndarray, np.ndarray]) -> None:
    url, rows, labels = house

    async def ask() -> list[str]:
        async with triton_aio.InferenceServerClient(url) as client:
            calls = [client.infer("iris", [tensor(row[None])]) for row in rows]
            return [each.as_numpy("label")[0].decode() for each in await asyncio.gather(*calls)]

    assert asyncio.run(ask()) == labels.tolist()
    request = service_pb2.ModelInferRequest(model_name="iris")
    request.inputs.add(name="X", datatype="FP64", shape=[1, 4])
    with grpc.insecure_channel(url) as channel:
        stub = channel.unary_unary(INFER)
        coming = []
        for number, row in enumerate(rows):  # metadata that fills and empties the table of headers
            request.inputs[0].contents.fp64_contents[:] = row
            metadata = [("x-request-id", f"r{number}"), ("x-long", "v" * (number * 37 % 900))]
            message = request.SerializeToString()
            coming.append(stub.future(message, metadata=metadata, timeout=30 + number))
        answers = [service_pb2.ModelInferResponse.FromString(each.result()) for each in coming]
    found = [each.outputs[0].contents.bytes_contents[0].decode() for each in answers]
    assert found == labels.tolist()


def test_deadlines_and_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ann 0123456789abcdef\n")
    known = {"authorization": "Bearer 0123456789abcdef"}
    with ExitStack() as stack:
        server, rows, _ = stack.enter_context(serving(tokens=tokens))
        client = stack.enter_context(triton.InferenceServerClient(f"127.0.0.1:{server.port}"))
        with pytest.raises(InferenceServerException, match="needs a token") as refused:
            client.infer("iris", [tensor(rows)])
        assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        assert client.infer("iris", [tensor(rows)], headers=known).as_numpy("label").size
        with pytest.raises(InferenceServerException) as late:
            client.infer("iris", [tensor(rows)], headers=known, timeout=1)
        assert late.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert client.is_server_ready()


def test_health_reflection_and_a_server_that_ends() -> None:
    with serving() as (server, _, _), grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest()
        assert stub.Check(asked).status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert schemas.INFERENCE in database.get_services()
        assert database.FindFileContainingSymbol(schemas.INFERENCE).name == "inference.proto"
        told = stub.Watch(asked)
        assert next(told).status == health_pb2.HealthCheckResponse.SERVING
        ending = threading.Thread(target=server.stop)
        ending.start()
        with pytest.raises(grpc.RpcError) as ended:
            list(told)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        ending.join(20.0)
        assert not ending.is_alive()


def test_the_page_shows_a_client_that_works(
    house: tuple[str, np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/how-to/grpc.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    exec(compile(code.replace("localhost:8000", house[0]), "grpc.md", "exec"), {})
    assert len(re.findall(r"high|low|middle", capsys.readouterr().out)) == 2
