"""Calls of gRPC: each message gets the answer that a request of HTTP gets."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.grpc import schemas
from runtime.http.wire.http2_carrier import FrameFlag, FrameKind, frame
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import Folder, House, tensor
from tests.runtime.http.frames import SERVICE, Heard, Talk, head, message, talk
from tests.runtime.plans import shift

CALL = {"content-type": "application/grpc"}
HEALTH, REFLECTION = "/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/"
OK, INVALID, LATE, NOT_FOUND, DENIED, EXHAUSTED = "0", "3", "4", "5", "7", "8"
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = "12", "13", "14", "16"

#: Inputs by model, as the JSON of a request has them.
INPUTS: dict[str, list[dict[str, Any]]] = {
    "iris": [tensor("X", "FP64", [1, 4], [1.5, -2.0, 3.0, 0.25])],
    "shift": [tensor("x", "FP64", [3, 4], [float(each) for each in range(12)])],
    "text": [tensor("document", "BYTES", [2], ["schön", ""])],
    "whole": [tensor("count", "INT64", [2, 2], [1, -(1 << 60), 3, 4])],
    "both": [
        tensor("left", "FP64", [1, 2], [1.0, 2.0]),
        tensor("right", "FP32", [1, 2], [3.0, 4.5]),
    ],
    "words": [tensor("document", "BYTES", [1], ["one two"])],
}
FIELDS = {"FP64": "fp64_contents", "FP32": "fp32_contents", "INT64": "int64_contents"}


def made(message_name: str, **fields: Any) -> Any:
    return schemas.message_class(f"inference.{message_name}")(**fields)


def read(name: str, body: bytes) -> Any:
    return schemas.parsed(f"inference.{name}", body)


def packed(texts: list[str]) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in map(str.encode, texts))


def asked(model: str, inputs: list[dict[str, Any]], *, raw: bool, **more: Any) -> bytes:
    """The message with these inputs."""
    call = made("ModelInferRequest", model_name=model, **more)
    for each in inputs:
        told = call.inputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
        data, kind = each["data"], each["datatype"]
        if not raw and kind == "BYTES":
            told.contents.bytes_contents.extend(map(str.encode, data))
        elif not raw:
            getattr(told.contents, FIELDS[kind]).extend(data)
        elif kind == "BYTES":
            call.raw_input_contents.append(packed(data))
        else:
            dtype = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8"}[kind]
            call.raw_input_contents.append(np.array(data, dtype).tobytes())
    return bytes(call.SerializeToString())


def answers(heard: Heard) -> dict[str, tuple[str, list[int], list[Any]]]:
    """Datatype, shape and values of each output."""
    assert (heard.status, len(heard.messages)) == (OK, 1), heard
    told = read("ModelInferResponse", heard.messages[0])
    found = {}
    for index, each in enumerate(told.outputs):
        if not told.raw_output_contents:
            (values,) = [values for _, values in each.contents.ListFields()]
            data = [one.decode() if isinstance(one, bytes) else one for one in values]
        elif each.datatype == "BYTES":
            data, rest = [], told.raw_output_contents[index]
            while rest:
                (size,) = struct.unpack_from("<I", rest)
                data.append(rest[4 : 4 + size].decode())
                rest = rest[4 + size :]
        else:
            dtype = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8"}[each.datatype]
            data = np.frombuffer(told.raw_output_contents[index], dtype).tolist()
        found[each.name] = each.datatype, list(each.shape), data
    return found


@pytest.fixture(scope="module")
def line(house: House) -> Iterator[Talk]:
    with talk(house.server.port) as one:
        yield one


# --- inference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("model", INPUTS)
def test_answers_are_those_of_http_bit_by_bit(
    house: House, line: Talk, model: str, *, raw: bool
) -> None:
    told = house.infer(INPUTS[model], model)
    expected = {
        each["name"]: (each["datatype"], each["shape"], each["data"]) for each in told["outputs"]
    }
    body = asked(model, INPUTS[model], raw=raw)
    for _ in range(3):  # the second one begins as one that is known
        assert answers(line.call("ModelInfer", body)) == expected


@pytest.mark.parametrize("raw", [True, False])
def test_rows_that_begin_alike_get_their_own_answers(
    house: House, line: Talk, *, raw: bool
) -> None:
    for row in house.rows[:20]:
        inputs = [tensor("X", "FP64", [1, 4], row.tolist())]
        label = answers(line.call("ModelInfer", asked("iris", inputs, raw=raw)))["label"]
        assert label[2] == house.original.predict([row]).tolist()


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_judged_as_over_http(
    house: House, line: Talk, bad: float, *, raw: bool
) -> None:
    """Raw tensors have them over HTTP, too."""
    row = [bad, 1.0, 2.0, 3.0]
    head_of = {"name": "X", "shape": [1, 4], "datatype": "FP64"}
    said = json.dumps({"inputs": [{**head_of, "parameters": {"binary_data_size": 32}}]}).encode()
    headers = {"inference-header-content-length": str(len(said))}
    usual = house.client.post("/v2/models/iris/infer", said + struct.pack("<4d", *row), headers)
    good = asked("iris", [tensor("X", "FP64", [1, 4], [0.0] * 4)], raw=raw)
    assert line.call("ModelInfer", good).status == OK
    heard = line.call("ModelInfer", asked("iris", [tensor("X", "FP64", [1, 4], row)], raw=raw))
    if usual.status == 200:
        assert heard.status == OK
    else:
        assert (heard.status, unquote(heard.trailers["grpc-message"])) == (INVALID, usual.error)


def test_ids_outputs_and_parameters(line: Talk) -> None:
    wanted = [{"name": "probabilities"}]
    body = asked("iris", INPUTS["iris"], raw=True, id="é7", outputs=wanted)
    heard = line.call("ModelInfer", body)
    told = read("ModelInferResponse", heard.messages[0])
    assert (told.id, told.model_name, told.model_version) == ("é7", "iris", "1")
    assert [each.name for each in told.outputs] == ["probabilities"]
    wanted[0]["parameters"] = {"classification": {"int64_param": 2}}  # type: ignore[assignment]
    found = answers(
        line.call("ModelInfer", asked("iris", INPUTS["iris"], raw=True, outputs=wanted))
    )
    assert found["probabilities"][:2] == ("BYTES", [1, 2])
    explained = asked(
        "iris", INPUTS["iris"], raw=True, parameters={"explain": {"bool_param": True}}
    )
    told = read("ModelInferResponse", line.call("ModelInfer", explained).messages[0])
    assert json.loads(told.parameters["attribution"].string_param)
    version = asked("shift", INPUTS["shift"], raw=True, model_version="2")
    assert answers(line.call("ModelInfer", version))["moved"][2][0] == 2.0


def test_large_messages_and_packed_ones(house: House, line: Talk) -> None:
    rows = np.random.default_rng(1).normal(size=(20_000, 4))
    inputs = [tensor("X", "FP64", [20_000, 4], rows.ravel().tolist())]
    body = asked("iris", inputs, raw=True)
    plain = answers(line.call("ModelInfer", body))
    assert plain["label"][2] == house.original.predict(rows).tolist()
    heard = line.call("ModelInfer", gzip.compress(body, 1), 1, grpc_encoding="gzip")
    assert heard.headers["grpc-encoding"] == "gzip"
    assert heard.body[0] == 1  # as its answer is large, too
    told = read("ModelInferResponse", gzip.decompress(heard.messages[0]))
    assert len(told.raw_output_contents[1]) == 20_000 * 24


A_ROW = INPUTS["iris"]
GOOD = asked("iris", A_ROW, raw=True)
TWICE = made("ModelInferRequest", model_name="iris", raw_input_contents=[b"", b""])
TWICE.inputs.add(name="X", datatype="FP64", shape=[1, 4])
MIXED = made("ModelInferRequest", model_name="whole")
MIXED.inputs.add(name="count", datatype="INT64", shape=[1, 2]).contents.fp64_contents.extend([1, 2])
HALF = made("ModelInferRequest", model_name="iris")
HALF.inputs.add(name="X", datatype="FP16", shape=[1, 4])
SMALL = made("ModelInferRequest", model_name="whole")
SMALL.inputs.add(name="count", datatype="INT8", shape=[1, 2]).contents.int_contents.extend([1, 999])
CUT = asked("iris", [tensor("X", "FP64", [1, 4], [0.0] * 3)], raw=True)
BOTH = made("ModelInferRequest", model_name="iris", raw_input_contents=[bytes(32)])
BOTH.inputs.add(name="X", datatype="FP64", shape=[1, 4]).contents.fp64_contents.extend([9.0] * 4)
FILES = made("RepositoryModelLoadRequest", model_name="iris")
FILES.parameters["file:1/model.txt"].bytes_param = b"x"
BYTES = made("ModelInferRequest", model_name="text")
BYTES.inputs.add(name="d", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"\xff")
PLAIN = made("ModelInferRequest", model_name="iris")
PLAIN.parameters["content_type"].string_param = "application/json"


@pytest.mark.parametrize(
    ("method", "body", "more", "status", "sentence"),
    [
        ("Nothing", b"", {}, UNIMPLEMENTED, "there is nothing here"),
        ("/v2", b"", {}, UNIMPLEMENTED, "GRPC has no meaning here"),
        ("ModelInfer", b"\xff\xff", {}, INVALID, "the message is no inference.ModelInferRequest"),
        ("ModelInfer", b"", {}, INVALID, "the name of a model is missing"),
        ("ModelInfer", asked("nobody", A_ROW, raw=True), {}, NOT_FOUND, "nothing is registered"),
        ("ModelInfer", asked("iris", [], raw=True), {}, INVALID, "there is no input"),
        ("ModelInfer", CUT, {}, INVALID, "takes 32 bytes"),
        ("ModelInfer", TWICE.SerializeToString(), {}, INVALID, "each input has its raw contents"),
        ("ModelInfer", BOTH.SerializeToString(), {}, INVALID, "raw contents and typed ones"),
        ("ModelInfer", MIXED.SerializeToString(), {}, INVALID, "are int64_contents"),
        ("ModelInfer", HALF.SerializeToString(), {}, INVALID, "FP16 has no typed contents"),
        ("ModelInfer", SMALL.SerializeToString(), {}, INVALID, "too large for INT8"),
        ("ModelInfer", BYTES.SerializeToString(), {}, INVALID, "an element is no UTF-8"),
        ("ModelInfer", PLAIN.SerializeToString(), {}, INVALID, "is the one element"),
        ("ModelInfer", GOOD, {"grpc_timeout": "1n"}, LATE, "deadline passed"),
        ("ModelInfer", GOOD, {"grpc_timeout": "1s"}, INVALID, "grpc-timeout is digits and a unit"),
        ("ModelInfer", GOOD, {"grpc_timeout": "5H"}, OK, ""),
        ("ModelInfer", bytes(2 << 20), {}, EXHAUSTED, "a message may have 1048576 bytes"),
        ("ModelMetadata", b"", {}, INVALID, "the name of a model is missing"),
        ("ModelConfig", b"\x0a\x01x", {}, NOT_FOUND, "nothing is registered as 'x'"),
        ("RepositoryModelLoad", FILES.SerializeToString(), {}, INVALID, "from their folder"),
        ("RepositoryModelLoad", b"\x12\x02\xc3\xa9", {}, NOT_FOUND, "no model 'é' in the folder"),
        (HEALTH + "Check", b"\x0a\x01x", {}, NOT_FOUND, "there is no such service"),
    ],
)
def test_errors_have_a_status_and_a_sentence(
    line: Talk, method: str, body: bytes, more: dict[str, str], status: str, sentence: str
) -> None:
    heard = line.call(method, body, **more)
    assert heard.status == status, heard
    said = heard.trailers.get("grpc-message", "")
    assert said.isascii()
    assert sentence in unquote(said)
    assert heard.headers[":status"] == "200"


def test_messages_that_are_framed_wrongly(line: Talk) -> None:
    block = head("POST", SERVICE + "ModelInfer", CALL)
    for body, status, sentence in (
        (b"", INVALID, "one message"),
        (b"\0\0", INVALID, "cut off"),
        (message(GOOD)[:-1], INVALID, "cut off"),
        (message(GOOD) * 2, INVALID, "one message"),
        (message(GOOD, 1), INTERNAL, "grpc-encoding"),
    ):
        heard = line.ask(block, body)
        assert heard.status == status
        assert sentence in unquote(heard.trailers["grpc-message"])
    packed_wrongly = line.call("ModelInfer", GOOD, 1, grpc_encoding="gzip")
    assert packed_wrongly.status == INVALID
    assert line.call("ModelInfer", GOOD, 1, grpc_encoding="zstd").status == UNIMPLEMENTED
    other = head("POST", SERVICE + "ModelInfer", {"content-type": "application/grpc+json"})
    assert line.ask(other, message(GOOD)).headers[":status"] == "405"
    assert line.call("ModelInfer", GOOD).status == OK


# --- other calls ---------------------------------------------------------------------------------


def test_models_and_the_server_tell_what_they_tell_over_http(house: House, line: Talk) -> None:
    def told(call: str, **fields: Any) -> Any:
        heard = line.call(call, made(f"{call}Request", **fields).SerializeToString())
        assert heard.status == OK, heard
        return read(f"{call}Response", heard.messages[0])

    assert told("ServerLive").live
    assert told("ServerReady").ready
    assert told("ServerMetadata").name == "pretzel"
    usual = house.client.get("/v2/models/shift").json
    metadata = told("ModelMetadata", name="shift")
    assert [*metadata.versions] == usual["versions"] == ["1", "2"]
    assert [(each.name, each.datatype, [*each.shape]) for each in metadata.inputs] == [
        (each["name"], each["datatype"], each["shape"]) for each in usual["inputs"]
    ]
    config = told("ModelConfig", name="text", version="1").config
    assert (config.backend, config.input[0].data_type, [*config.input[0].dims]) == (
        *("pretzel", 13),
        [-1],
    )
    assert [told("ModelReady", name=each).ready for each in ("iris", "nobody")] == [True, False]
    before = told("ModelStatistics", name="iris").model_stats[0].inference_count
    line.call("ModelInfer", GOOD)
    assert told("ModelStatistics", name="iris").model_stats[0].inference_count == before + 1
    assert len(told("ModelStatistics").model_stats) == 8

    def states() -> dict[str, str]:
        return {each.name: each.state for each in told("RepositoryIndex").models}

    told("RepositoryModelLoad", model_name="spare")
    assert states()["spare"] == "READY"
    told("RepositoryModelUnload", model_name="spare")
    assert states()["spare"] == "UNAVAILABLE"
    assert [each.name for each in told("RepositoryIndex", ready=True).models] == ["iris"]


def test_a_stream_answers_in_order_and_outlives_errors(line: Talk) -> None:
    stream = line.begin(head("POST", SERVICE + "ModelStreamInfer", CALL))
    calls = [
        asked(model, INPUTS["iris"], raw=True, id=str(number))
        for number, model in enumerate(["iris"] * 40 + ["nobody"] + ["iris"] * 40)
    ]
    whole = b"".join(map(message, calls))
    half = len(whole) // 2 + 3
    line.say(frame(FrameKind.DATA, 0, stream, whole[:half]))
    line.say(frame(FrameKind.DATA, 0, stream, whole[half:]))
    line.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, stream))
    heard = line.hear(stream)
    told = [read("ModelStreamInferResponse", each) for each in heard.messages]
    assert [each.infer_response.id for each in told] == [
        "" if number == 40 else str(number) for number in range(81)
    ]
    assert "nothing is registered" in told[40].error_message
    assert heard.status == OK


def test_a_stream_ends_at_its_deadline(line: Talk) -> None:
    timed = {**CALL, "grpc-timeout": "100m"}
    stream = line.begin(head("POST", SERVICE + "ModelStreamInfer", timed))
    line.say(frame(FrameKind.DATA, 0, stream, message(GOOD)))
    heard = line.hear(stream)
    assert (len(heard.messages), heard.status) == (1, LATE)


def test_health_is_told_and_told_again_when_it_changes(house: House, line: Talk) -> None:
    assert line.call(HEALTH + "Check", b"").messages == [b"\x08\x01"]
    named = bytes((10, len(schemas.INFERENCE))) + schemas.INFERENCE.encode()
    assert line.call(HEALTH + "Check", named).status == OK
    stream = line.begin(head("POST", HEALTH + "Watch", CALL))
    line.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, stream, message(b"")))
    assert line.hear(stream, 1).messages == [b"\x08\x01"]
    service = house.server.service
    usual, service.ready = service.ready, lambda: type(usual())(ready=False)  # type: ignore[method-assign]
    try:
        assert line.hear(stream, 1).messages == [b"\x08\x02"]
    finally:
        service.ready = usual  # type: ignore[method-assign]
    assert line.hear(stream, 1).messages == [b"\x08\x01"]


def test_reflection_tells_services_and_files(line: Talk) -> None:
    def ask(**fields: str) -> Any:
        kind = schemas.message_class("grpc.reflection.v1.ServerReflectionRequest")
        body = kind(**fields).SerializeToString()
        heard = line.call(REFLECTION + "ServerReflectionInfo", body)
        return schemas.parsed("grpc.reflection.v1.ServerReflectionResponse", heard.messages[0])

    services = [each.name for each in ask(list_services="").list_services_response.service]
    assert services == [schemas.INFERENCE, schemas.HEALTH, *schemas.REFLECTION]
    for found in (ask(file_by_filename="inference.proto"), ask(file_containing_symbol=services[0])):
        (file,) = found.file_descriptor_response.file_descriptor_proto
        told = type(schemas.file_of("inference")).FromString(file)
        assert [each.name for each in told.message_type][5] == "ModelReadyResponse"
    assert ask(file_by_filename="none.proto").error_response.error_code == int(NOT_FOUND)
    assert ask(all_extension_numbers_of_type="x").error_response.error_code == int(UNIMPLEMENTED)


def test_tokens_limits_metrics_and_the_log_are_those_of_http(tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text("ann 0123456789abcdef predict\n")
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift(1.0))
        settings = ServerSettings(
            port=0, tokens=tokens, known_rate=1e-3, rate_burst=4e3, access_log=log, max_unread=0.0
        )
        known = {"authorization": "Bearer 0123456789abcdef", "x_request_id": "r7"}
        body = asked("shift", INPUTS["shift"], raw=True)
        with Server(runtime, settings, repository=Folder()) as server, talk(server.port) as one:
            assert one.call("ModelInfer", body).status == UNAUTHENTICATED
            assert (
                one.call("ModelInfer", body, authorization="Bearer none").status == UNAUTHENTICATED
            )
            assert one.call("ServerReady", b"").status == OK
            assert one.call(HEALTH + "Check", b"").status == OK
            assert one.call("RepositoryIndex", b"", **known).status == DENIED
            assert [one.call("ModelInfer", body, **known).status for _ in range(4)] == [OK] * 4
            refused = one.call("ModelInfer", body, **known)
            assert (refused.status, refused.trailers["retry-after"]) == (EXHAUSTED, "1000")
            stream = one.begin(head("POST", SERVICE + "ModelStreamInfer", CALL))
            one.say(frame(FrameKind.DATA, 0, stream, message(body)))
            assert one.hear(stream).status == UNAUTHENTICATED  # not a message: nothing will do
        lines = [json.loads(each) for each in log.read_text().splitlines()]
        infers = [each for each in lines if each["path"].endswith("/ModelInfer")]
        assert [each["status"] for each in infers] == [401, 401, *[200] * 4, 429]
        assert {each["method"] for each in infers} == {"GRPC"}
        some = {"time": "", "seconds": 0, "bytes": 0}
        assert infers[2] | some == some | {
            "peer": "127.0.0.1",
            "method": "GRPC",
            "path": SERVICE + "ModelInfer",
            "status": 200,
            "client": "ann",
            "id": "r7",
            "model": "shift",
            "version": "1",
        }


def test_scopes_and_the_audit_log_are_those_of_http(tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text("ann 0123456789abcdef predict,read,change sh*\n")
    with Runtime(executors=1) as runtime:
        for name in ("shift", "other"):
            runtime.register(name, shift(1.0))
        settings = ServerSettings(port=0, tokens=tokens, audit_log=log)
        known = {"authorization": "Bearer 0123456789abcdef"}
        with Server(runtime, settings, repository=Folder()) as server, talk(server.port) as one:
            for name, status in (("shift", OK), ("other", DENIED)):
                for _ in range(2):  # the second time, its beginning is known
                    body = asked(name, INPUTS["shift"], raw=True)
                    assert one.call("ModelInfer", body, **known).status == status
                told = made("ModelMetadataRequest", name=name).SerializeToString()
                assert one.call("ModelMetadata", told, **known).status == status
                change = made("RepositoryModelUnloadRequest", model_name=name).SerializeToString()
                one.call("RepositoryModelUnload", change, **known)
            index = one.call("RepositoryIndex", b"", **known)
            assert "other" not in repr(index.messages)
        lines = [json.loads(each) for each in log.read_text().splitlines()]
        assert [each["model"] for each in lines] == ["shift", "other"]
        assert [each.get("change", "") for each in lines] == ["", ""]
        assert lines[1]["status"] == 403


def test_calls_are_counted(house: House, line: Talk) -> None:
    line.call("ModelInfer", GOOD)
    text = Client(house.server.port).get("/metrics").body.decode()
    series = f'method="GRPC",route="{SERVICE}ModelInfer",model="iris",version="1",status="200"'
    assert series in text


def test_without_protobuf_calls_are_unimplemented(
    house: House, line: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    schemas.pool.cache_clear()
    schemas.message_class.cache_clear()
    heard = line.call("ModelMetadata", b"\x0a\x04iris")
    assert (heard.status, "pretzel-runtime[grpc]" in heard.trailers["grpc-message"]) == ("12", True)
    assert house.client.get("/v2").status == 200
