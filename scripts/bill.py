"""The bill of materials of a release: CycloneDX, as JSON.

It lists the distribution, what it may be installed with and in which versions, and the work of
others that is in the wheel, with licences: LICENSES/bundled.toml has what the code does not say.
"""

from __future__ import annotations

import email
import hashlib
import json
import tomllib
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Extras for those who work on the project, and what they bring.
_NOT_FOR_USERS = {"test", "docs", "check", "dev"}


def bill_of_materials(wheel: Path, source: Path, commit: str, seconds: int) -> bytes:
    """The parts and dependencies of a wheel, with licences."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    (metadata,) = (held[name] for name in held if name.endswith(".dist-info/METADATA"))
    told = email.message_from_bytes(metadata)
    licences = tomllib.loads((source / "LICENSES" / "bundled.toml").read_text("utf-8"))
    ours = f"pkg:pypi/pretzel-runtime@{told['Version']}"
    needed = list(_needed(told.get_all("Requires-Dist", []), licences["dependencies"]))
    parts = [part for row in licences["bundled"] for part in _bundled(row, held)]
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{ours}?commit={commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, timezone.utc).isoformat(),
            "component": {
                "type": "library",
                "bom-ref": ours,
                "name": "pretzel-runtime",
                "version": told["Version"],
                "purl": ours,
                "licenses": _licence(told["License-Expression"]),
                "properties": [{"name": "pretzel:commit", "value": commit}],
            },
        },
        "components": [*needed, *parts],
        "dependencies": [
            {"ref": ours, "dependsOn": [each["bom-ref"] for each in needed]},
            *({"ref": each["bom-ref"]} for each in needed),
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def _licence(expression: str) -> list[dict[str, Any]]:
    if " " in expression:
        return [{"expression": expression}]
    return [{"license": {"id": expression}}]


def requirements(lines: list[str]) -> dict[str, list[Requirement]]:
    """Its dependencies by name: ranges, and the extras that they belong to."""
    found = dict[str, list[Requirement]]()
    for each in map(Requirement, lines):
        extras = {"", *_extras(each)} - _NOT_FOR_USERS
        inside = each.marker is not None and "extra" in str(each.marker)
        if each.name != "pretzel-runtime" and (len(extras) > 1 or not inside):
            found.setdefault(canonicalize_name(each.name), []).append(each)
    return dict(sorted(found.items()))


def _extras(each: Requirement) -> Iterator[str]:
    _, _, name = str(each.marker or "").rpartition("extra == ")
    if name:
        yield name.strip("\"'")


def _needed(lines: list[str], licences: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    known = {str(canonicalize_name(name)): licence for name, licence in licences.items()}
    for name, each in requirements(lines).items():
        extras = sorted(extra for one in each for extra in _extras(one))
        ranges = sorted({str(one.specifier) for one in each})
        properties = [("pretzel:range", " or ".join(ranges))]
        properties += [("pretzel:extras", " ".join(extras))] if extras else []
        yield {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "purl": f"pkg:pypi/{name}",
            "scope": "optional" if len(extras) == len(each) else "required",
            "licenses": _licence(known[name]),
            "properties": [{"name": key, "value": value} for key, value in properties],
        }


def _bundled(row: Mapping[str, Any], held: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    for name in sorted(held):
        if any(fnmatch(name, pattern) for pattern in row["files"]):
            yield {
                "type": "data",
                "bom-ref": name,
                "name": row["name"],
                "description": row["about"],
                "licenses": _licence(row["licence"]),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(held[name]).hexdigest()}],
                "externalReferences": [{"type": "other", "url": row["origin"]}],
                "properties": [{"name": "pretzel:file", "value": name}],
            }
