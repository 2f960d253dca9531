"""Clients that others have written, unmodified, against a running server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.house import ROOT
from tests.runtime.http.conftest import House

HERE = Path(__file__).parent


def address(house: House) -> str:
    return f"127.0.0.1:{house.server.port}"


def triton_input(module: Any, name: str, values: NDArray[Any], *, binary: bool = True) -> Any:
    names = {"float64": "FP64", "float32": "FP32", "int64": "INT64", "object": "BYTES"}
    made = module.InferInput(name, list(values.shape), names[values.dtype.name])
    made.set_data_from_numpy(values, binary_data=binary)
    return made


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_triton_client(house: House, binary: bool) -> None:  # noqa: FBT001 (a parameter)
    import tritonclient.http as triton

    x = house.rows[:9]
    with triton.InferenceServerClient(address(house)) as client:
        wanted = [
            triton.InferRequestedOutput(name, binary_data=binary)
            for name in ("probabilities", "label")
        ]
        request = [triton_input(triton, "X", x, binary=binary)]
        made = client.infer("iris", request, outputs=wanted, request_id="7")
        assert made.get_response()["id"] == "7"
        np.testing.assert_allclose(
            made.as_numpy("probabilities"), house.original.predict_proba(x), rtol=1e-12
        )
        labels = made.as_numpy("label").astype(str).tolist()
        assert labels == house.original.predict(x).tolist()
        every = client.infer("iris", request)
        assert every.as_numpy("scores").shape == (9, 3)
        people = [
            triton_input(triton, "age", np.array([1.0, 2.0]), binary=binary),
            triton_input(triton, "income", np.array([3, 4]), binary=binary),
            triton_input(triton, "city", np.array(["Oslo", "Łódź"], object), binary=binary),
        ]
        found = client.infer("people", people, priority=1, timeout=5_000_000)
        assert found.as_numpy("both").tolist() == [[2.0, 6.0], [4.0, 8.0]]
        assert [text.decode() for text in found.as_numpy("city")] == ["Oslo", "Łódź"]


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_triton_client_with_packed_bodies(house: House, packing: str) -> None:
    import tritonclient.http as triton

    x = np.arange(20_000.0).reshape(-1, 4)
    with triton.InferenceServerClient(address(house)) as client:
        made = client.infer(
            "shift",
            [triton_input(triton, "x", x)],
            request_compression_algorithm=packing,
            response_compression_algorithm=packing,
        )
        np.testing.assert_array_equal(made.as_numpy("moved"), x + 2)


def test_triton_client_looks_around(house: House) -> None:
    import tritonclient.http as triton

    with triton.InferenceServerClient(address(house)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("shift", "1")
        assert not client.is_model_ready("none")
        assert client.get_server_metadata()["name"] == "pretzel"
        assert client.get_model_metadata("shift")["inputs"][0]["shape"] == [-1, 4]
        assert client.get_model_config("shift")["platform"] == "pretzel"
        assert client.get_inference_statistics("shift")["model_stats"][0]["name"] == "shift"
        assert client.get_inference_statistics()["model_stats"]
        index = client.get_model_repository_index()
        assert {each["name"] for each in index} == {"iris", "spare"}
        client.load_model("spare")
        client.unload_model("spare")
        with pytest.raises(triton.InferenceServerException, match="registered") as caught:
            client.get_model_metadata("none")
        assert caught.value.status() == "404"
        x = triton_input(triton, "X", np.zeros((2, 3)))
        with pytest.raises(triton.InferenceServerException, match="expected 4 columns") as caught:
            client.infer("iris", [x])
        assert caught.value.status() == "400"


def test_triton_client_has_classes(house: House) -> None:
    import tritonclient.http as triton

    with triton.InferenceServerClient(address(house)) as client:
        wish = triton.InferRequestedOutput("probabilities", class_count=1)
        x = house.rows[:3]
        made = client.infer("iris", [triton_input(triton, "X", x)], outputs=[wish])
        best = [text.decode().split(":")[2] for text in made.as_numpy("probabilities").ravel()]
    assert best == house.original.predict(x).tolist()


def test_triton_client_many_at_once(house: House) -> None:
    import tritonclient.http.aio as triton

    async def ask(client: Any, value: float) -> bool:
        x = np.full((3, 4), value)
        made = await client.infer("shift", [triton_input(triton, "x", x)])
        return bool((made.as_numpy("top") == value + 2).all())

    async def work() -> list[bool]:
        async with triton.InferenceServerClient(address(house)) as client:
            assert await client.is_server_ready()
            return await asyncio.gather(*(ask(client, float(n)) for n in range(100)))

    assert all(asyncio.run(work()))


@pytest.mark.apart
@pytest.mark.parametrize("name", ["kserve", "mlserver"])
def test_clients_of_other_environments(house: House, name: str) -> None:
    """They are not skipped where they cannot be had: that is a failure, with its reason."""
    made = subprocess.run(
        [ROOT / "scripts" / "clients", name],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    script = HERE / f"{name}_client.py"
    run = [made.stdout.strip(), str(script), str(house.server.port)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{name}: all is well\n")
    assert sys.executable not in made.stdout
