"""Every row of the protocol's tables, against a running server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.http.conftest import CLASSES, House, outputs, tensor


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_the_server_says_what_it_is(house: House, path: str) -> None:
    said = house.client.get(path).json
    assert said["name"] == "pretzel"
    assert said["version"]
    assert "binary_tensor_data" in said["extensions"]


def test_health_has_bodies_for_clients_that_read_them(house: House) -> None:
    assert house.client.get("/v2/health/live").json == {"live": True}
    reply = house.client.get("/v2/health/ready")
    assert (reply.status, reply.json) == (200, {"ready": True})
    assert reply.headers["content-type"] == "application/json"


def test_models_are_listed(house: House) -> None:
    known = ["iris", "shift", "text", "people", "whole", "both", "words"]
    assert house.client.get("/v2/models").json == {"models": known}


def test_metadata_is_what_the_program_is(house: House) -> None:
    assert house.client.get("/v2/models/iris").json == {
        "name": "iris",
        "versions": ["1"],
        "platform": "pretzel",
        "inputs": [{"name": "X", "datatype": "FP64", "shape": [-1, 4]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP64", "shape": [-1, 3]},
            {"name": "scores", "datatype": "FP64", "shape": [-1, 3]},
        ],
    }
    people = house.client.get("/v2/models/people").json["inputs"]
    assert [(each["name"], each["datatype"], each["shape"]) for each in people] == [
        ("age", "FP64", [-1]),
        ("income", "FP64", [-1]),
        ("city", "BYTES", [-1]),
    ]


@pytest.mark.parametrize("model", ["iris", "shift", "text", "people", "whole", "both", "words"])
def test_answers_are_what_metadata_promises(house: House, model: str) -> None:
    known = house.client.get(f"/v2/models/{model}").json
    inputs = []
    for spec in known["inputs"]:
        shape = [2 if size == -1 else size for size in spec["shape"]]
        count = int(np.prod(shape))
        data = ["word001 word002"] * count if spec["datatype"] == "BYTES" else [3] * count
        inputs.append(tensor(spec["name"], spec["datatype"], shape, data))
    made = house.infer(inputs, model)["outputs"]
    assert [(each["name"], each["datatype"]) for each in made] == [
        (spec["name"], spec["datatype"]) for spec in known["outputs"]
    ]
    for each, spec in zip(made, known["outputs"], strict=True):
        assert each["shape"] == [2 if size == -1 else size for size in spec["shape"]]
        assert np.shape(np.array(each["data"], object)) == (np.prod(each["shape"]),)


def test_versions_have_addresses(house: House) -> None:
    assert house.client.get("/v2/models/shift").json["versions"] == ["1", "2"]
    x = [tensor("x", "FP64", [1, 4], [0, 0, 0, 0])]
    for version, moved in [("1", 1.0), ("2", 2.0)]:
        path = f"/v2/models/shift/versions/{version}"
        made = house.client.post(f"{path}/infer", {"inputs": x}).json
        assert made["model_version"] == version
        assert outputs(made)["top"]["data"] == [moved]
        assert house.client.get(f"{path}/ready").json == {"name": "shift", "ready": True}
        assert house.client.get(path).json["name"] == "shift"
    assert house.infer(x, "shift")["model_version"] == "2"
    assert house.client.get("/v2/models/shift/versions/9").status == 404


def test_what_is_not_there_is_404(house: House) -> None:
    for path in ["/v2/models/none", "/v2/models/none/ready", "/v2/models/none/config", "/nothing"]:
        reply = house.client.get(path)
        assert reply.status == 404
        assert reply.error
    assert house.client.post("/v2/models/none/infer", {"inputs": []}).status == 404


def test_a_wrong_method_is_405_and_names_the_right_ones(house: House) -> None:
    reply = house.client.get("/v2/models/iris/infer")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert house.client.ask("DELETE", "/v2").headers["allow"] == "GET, HEAD"


def test_head_is_get_without_the_body(house: House) -> None:
    got, head = house.client.get("/v2"), house.client.ask("HEAD", "/v2")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == str(len(got.body))


def test_inference_answers_as_the_original(house: House) -> None:
    block = house.rows[:7]
    made = house.infer([tensor("X", "FP64", [7, 4], block.ravel().tolist())], id="42")
    assert made["id"] == "42"
    assert (made["model_name"], made["model_version"]) == ("iris", "1")
    found = outputs(made)
    assert found["label"]["data"] == house.original.predict(block).tolist()
    got = np.reshape(found["probabilities"]["data"], (7, 3))
    np.testing.assert_allclose(got, house.original.predict_proba(block), rtol=1e-12)


def test_one_row_answers_as_a_block_does(house: House) -> None:
    block = house.infer([tensor("X", "FP64", [3, 4], house.rows[:3].ravel().tolist())])
    for place in range(3):
        row = house.infer([tensor("any name", "FP64", [1, 4], house.rows[place].tolist())])
        for name, each in outputs(row).items():
            of_block = outputs(block)[name]
            assert each["shape"] == [1, *of_block["shape"][1:]]
            width = len(each["data"])
            assert each["data"] == of_block["data"][place * width : (place + 1) * width]


def test_the_repository_is_asked(house: House) -> None:
    index = house.client.post("/v2/repository/index").json
    assert [(each["name"], each["state"]) for each in index] == [
        ("iris", "READY"),
        ("spare", "UNAVAILABLE"),
    ]
    assert index[1]["reason"] == "unloaded"
    only = house.client.post("/v2/repository/index", {"ready": True}).json
    assert [each["name"] for each in only] == ["iris"]
    load = house.client.post(
        "/v2/repository/models/spare/load", {"parameters": {"unload_dependents": False}}
    )
    assert (load.status, load.json) == (200, {"name": "spare", "load": True})
    unload = house.client.post(
        "/v2/repository/models/spare/unload", {"parameters": {"unload_dependents": False}}
    )
    assert (unload.status, unload.json) == (200, {"name": "spare", "unload": True})
    missing = house.client.post("/v2/repository/models/none/load")
    assert missing.status == 404
    assert "none" in missing.error


def test_statistics_count(house: House) -> None:
    def counts() -> tuple[int, int, int]:
        (known,) = house.client.get("/v2/models/people/stats").json["model_stats"]
        stats = known["inference_stats"]
        return known["inference_count"], stats["success"]["count"], stats["fail"]["count"]

    before = counts()
    columns = [
        tensor("age", "FP64", [3], [1, 2, 3]),
        tensor("income", "FP64", [3], [1, 2, 3]),
        tensor("city", "BYTES", [3], ["a", "b", "c"]),
    ]
    house.infer(columns, "people")
    assert house.client.post("/v2/models/people/infer", {"inputs": columns[:1]}).status == 400
    after = counts()
    assert np.subtract(after, before).tolist() == [3, 1, 1]
    every = house.client.get("/v2/models/stats").json["model_stats"]
    assert ("shift", "1") in {(each["name"], each["version"]) for each in every}
    (one,) = house.client.get("/v2/models/shift/versions/1/stats").json["model_stats"]
    assert one["version"] == "1"


def test_configuration_has_tritons_words(house: House) -> None:
    known = house.client.get("/v2/models/iris/config").json
    assert known["max_batch_size"] == 0
    assert known["input"] == [{"name": "X", "data_type": "TYPE_FP64", "dims": [-1, 4]}]
    assert known["output"][0]["data_type"] == "TYPE_STRING"


def test_outputs_are_those_asked_for_in_that_order(house: House) -> None:
    x = [tensor("X", "FP64", [1, 4], [1, 2, 3, 4])]
    made = house.infer(x, outputs=[{"name": "scores"}, {"name": "label"}])
    assert [each["name"] for each in made["outputs"]] == ["scores", "label"]
    for wanted in [[{"name": "none"}], [{"name": "label"}, {"name": "label"}]]:
        reply = house.client.post("/v2/models/iris/infer", {"inputs": x, "outputs": wanted})
        assert reply.status == 400


def test_classification_names_the_largest(house: House) -> None:
    x = [tensor("X", "FP64", [2, 4], [9, 0, 0, 0, -9, 0, 0, 0])]
    wish = {"name": "probabilities", "parameters": {"classification": 2}}
    (made,) = house.infer(x, outputs=[wish])["outputs"]
    assert (made["datatype"], made["shape"]) == ("BYTES", [2, 2])
    expected = house.original.predict_proba(np.reshape(x[0]["data"], (2, 4)))
    for row, texts in zip(expected, np.reshape(made["data"], (2, 2)), strict=True):
        value, place, label = texts[0].split(":")
        assert (int(place), label) == (row.argmax(), CLASSES[row.argmax()])
        assert float(value) == pytest.approx(row.max(), abs=1e-6)


def test_parameters_are_honoured_or_ignored(house: House) -> None:
    x = [tensor("X", "FP64", [1, 4], [1, 2, 3, 4])]
    known = {"sequence_id": 7, "sequence_start": True, "unknown": [1], "priority": 1, "timeout": 0}
    assert house.infer(x, parameters=known)["outputs"]
    assert house.infer(x, parameters={"timeout": "5000000", "priority": "2"})["outputs"]
    wrong: list[dict[str, Any]] = [
        {"timeout": -1},
        {"priority": "soon"},
        {"timeout": 1.5},
        {"priority": True},
    ]
    for bad in wrong:
        reply = house.client.post("/v2/models/iris/infer", {"inputs": x, "parameters": bad})
        assert reply.status == 400
        assert next(iter(bad)) in reply.error


@pytest.mark.parametrize("way", ["header", "parameter"])
def test_a_deadline_that_cannot_be_met_is_504(house: House, way: str) -> None:
    text = " ".join(f"word{n % 300:03d}" for n in range(3000))
    body = {"inputs": [tensor("document", "BYTES", [20], [text] * 20)]}
    headers = {"x-request-timeout-ms": "0.001"} if way == "header" else {}
    if way == "parameter":
        body["parameters"] = {"timeout": 1}  # type: ignore[assignment]  # a body may be anything
    reply = house.client.post("/v2/models/text/infer", body, headers)
    assert reply.status == 504, reply.body
    assert "deadline" in reply.error
    assert (
        house.client.post("/v2/models/text/infer", body, {"x-request-timeout-ms": "-"}).status
        == 400
    )


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT64"])
def test_a_row_without_the_dimension_of_rows_is_a_block_of_one(house: House, datatype: str) -> None:
    values = [3, 1, 4, 1]
    one = house.infer([tensor("X", datatype, [4], values)])
    assert one == house.infer([tensor("X", datatype, [1, 4], values)])
