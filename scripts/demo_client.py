"""A client of the Open Inference Protocol: Triton's own where it is installed, else a few lines.

Either way the server is asked as any other server of the protocol would be.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

DTYPES = {"FP64": np.float64, "FP32": np.float32, "INT64": np.int64, "BYTES": np.object_}


class Tensor(NamedTuple):
    """One named input."""

    name: str
    datatype: str
    values: NDArray[Any]


class Client(Protocol):
    """Asks a model for its answers."""

    name: str

    def infer(self, model: str, tensors: list[Tensor]) -> dict[str, NDArray[Any]]:
        """Every output of the model for these inputs."""

    def metadata(self, model: str) -> dict[str, Any]:
        """What the model takes and answers."""


def connect(url: str) -> Client:
    """A client for the server at this address."""
    try:
        return Triton(url)
    except ImportError:
        return Plain(url)


def tensors_of(metadata: dict[str, Any], rows: Any) -> Iterator[Tensor]:
    """Rows as the tensors that a model's metadata asks for: one, or one for each column."""
    inputs = metadata["inputs"]
    for one in inputs:
        values = rows[one["name"]] if hasattr(rows, "columns") else rows
        yield Tensor(one["name"], one["datatype"], np.asarray(values, DTYPES[one["datatype"]]))


class Triton:
    """NVIDIA's client: tensors as raw bytes behind a JSON header."""

    name = "tritonclient"

    def __init__(self, url: str) -> None:
        import tritonclient.http as library

        self._library = library
        self._client = library.InferenceServerClient(url.removeprefix("http://"))

    def metadata(self, model: str) -> dict[str, Any]:
        """What the model takes and answers."""
        found: dict[str, Any] = self._client.get_model_metadata(model)
        return found

    def infer(self, model: str, tensors: list[Tensor]) -> dict[str, NDArray[Any]]:
        """Every output of the model for these inputs."""
        inputs = []
        for tensor in tensors:
            one = self._library.InferInput(tensor.name, list(tensor.values.shape), tensor.datatype)
            one.set_data_from_numpy(tensor.values)
            inputs.append(one)
        made = self._client.infer(model, inputs)
        names = [one["name"] for one in made.get_response()["outputs"]]
        return {name: _texts(made.as_numpy(name)) for name in names}


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Strings as strings, which the client leaves as bytes."""
    if values.dtype != np.object_:
        return values
    return np.array([value.decode() for value in values.ravel()], np.object_).reshape(values.shape)


class Plain:
    """The protocol as JSON over urllib."""

    name = "urllib"

    def __init__(self, url: str) -> None:
        self._url = url

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self._url}{path}", data, timeout=60) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def metadata(self, model: str) -> dict[str, Any]:
        """What the model takes and answers."""
        return self._ask(f"/v2/models/{model}")

    def infer(self, model: str, tensors: list[Tensor]) -> dict[str, NDArray[Any]]:
        """Every output of the model for these inputs."""
        inputs = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.values.shape),
                "data": _plain(tensor.values),
            }
            for tensor in tensors
        ]
        made = self._ask(f"/v2/models/{model}/infer", {"inputs": inputs})
        return {
            one["name"]: np.array(one["data"], DTYPES.get(one["datatype"])).reshape(one["shape"])
            for one in made["outputs"]
        }


def _plain(values: NDArray[Any]) -> list[Any]:
    """Values as JSON has them: what is no number is null."""
    flat = values.ravel().tolist()
    return [None if isinstance(value, float) and value != value else value for value in flat]  # noqa: PLR0124 (NaN)
