"""Graphs as files: the nodes of one as data with its parameters, or the text that people write.

    flour.save_graph(graph, "decide.graph")     a container, as plans are saved
    flour.load_graph("decide.graph")            or "graph.toml": see flour.language.graph_text

A graph is saved with the names of its models, which are looked up where it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flour.core.callables import Allowed, allowing
from flour.core.errors import DamagedProgram, ParameterError
from flour.core.modules import load_operator
from flour.core.node import Node, node
from flour.core.op import Parameter, from_data, to_data
from flour.core.provenance import Origin
from flour.language.flow import Flow, with_origins
from objectstore import Archive, Blob, Strings
from objectstore.archive import opened, write
from objectstore.layout import MAGIC

FORMAT = 1
ENDING, TEXT = ".graph", "graph.toml"
#: A file with more nodes is damaged, or a mistake.
MOST_NODES = 65_536
_KEYS = {"graph", "nodes", "origins", "outputs"}


def is_graph_file(path: str | Path) -> bool:
    """True if a file of this name is a graph."""
    name = Path(path).name
    return name.endswith((ENDING, f".{TEXT}")) or name == TEXT


def save_graph(graph: Flow, path: str | Path, *, durable: bool = True) -> None:
    """Write a graph as data; coroutines by the place where they can be imported."""
    if not Path(path).name.endswith(ENDING):
        raise ParameterError.here(
            f"a graph is saved in a file whose name ends in {ENDING}",
            found=str(path),
            hint=f"other names are read as the text of a {TEXT}, which is written by hand",
        )
    places = {item: number for number, item in enumerate(graph.nodes())}
    parameters: dict[str, Parameter] = {
        each.digest: each for item in places for each in item.op.parameters()
    }
    origins = graph.origins().items()
    manifest = {
        "graph": FORMAT,
        "nodes": [[to_data(item.op), [places[each] for each in item.inputs]] for item in places],
        "outputs": [[name, places[item]] for name, item in graph.outputs.items()],
        "origins": [
            [places[item], [list(origin) for origin in found]]
            for item, found in origins
            if item in places
        ],
    }
    write(path, manifest, parameters, durable=durable)


def load_graph(path: str | Path, *, allow_python: Allowed = False) -> Flow:
    """The graph in a file; with `allow_python`, the modules of its coroutines are imported.

    `allow_python=["shop.features"]` imports no others.
    """
    load_operator("")
    with allowing(allow_python):
        if not Path(path).name.endswith(ENDING):
            from flour.language.graph_text import read_graph

            return read_graph(Path(path).read_text(encoding="utf-8"), str(path))
        with Archive(opened(path), str(path)) as archive:
            return _graph(archive.manifest, archive.get, str(path))


def graph_of(raw: bytes, where: str) -> Flow:
    """The graph in these bytes, of either kind; its coroutines must be known already."""
    load_operator("")
    if raw.startswith(MAGIC):
        with Archive(np.frombuffer(raw, np.uint8), where) as archive:
            return _graph(archive.manifest, archive.get, where)
    from flour.language.graph_text import read_graph

    try:
        return read_graph(raw.decode("utf-8"), where)
    except UnicodeDecodeError:
        raise DamagedProgram("this is neither a saved graph nor text", where=where) from None


def models_of(path: str | Path) -> list[str]:
    """The addresses of the models that a saved graph names; nothing else of it is looked at."""
    with Archive(opened(path), str(path)) as archive:
        nodes: Any = archive.manifest["nodes"]
        named = [op[1].get("address") for op, _ in nodes if op[0] == "ModelCall"]
    return [address for address in dict.fromkeys(named) if address]


def _graph(manifest: Mapping[str, Any], find: Callable[[str], Parameter], where: str) -> Flow:
    if manifest.get("graph") != FORMAT or manifest.keys() != _KEYS:
        raise DamagedProgram(
            "this is no graph that this release can read",
            where=where,
            found=f"format {manifest.get('graph')!r:.40}, this release reads format {FORMAT}; "
            f"{[*manifest]}"[:200],
            hint="save it again with this release, or update",
        )
    copies: dict[str, Parameter] = {}

    def kept(digest: str) -> Parameter:
        if digest not in copies:
            copies[digest] = _copied(find(digest))
        return copies[digest]

    try:
        data = manifest["nodes"]
        nodes: list[Node] = []
        if len(data) > MOST_NODES:
            raise DamagedProgram("a graph has no more than so many nodes", found=str(len(data)))
        for op, inputs in data:
            if not all(type(place) is int and 0 <= place < len(nodes) for place in inputs):
                raise DamagedProgram("a node reads only nodes before it", found=str(inputs)[:80])
            nodes.append(node(from_data(op, kept), [nodes[place] for place in inputs]))
        outputs = {str(name): nodes[place] for name, place in manifest["outputs"]}
        origins = {
            nodes[place]: tuple(Origin(str(f), int(line), str(step)) for f, line, step in found)
            for place, found in manifest["origins"]
        }
    except (TypeError, ValueError, LookupError) as problem:
        raise DamagedProgram(
            "this graph is damaged", where=where, found=str(problem)[:80]
        ) from None
    return with_origins(outputs, origins)


def _copied(parameter: Parameter) -> Parameter:
    """A parameter that does not need the file, which may be replaced while the graph is served."""
    if isinstance(parameter, Blob):
        return Blob.of(parameter.array.copy())
    return Strings.of(parameter.to_list())
