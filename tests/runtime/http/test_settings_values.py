"""Values of settings that do not fit are refused, by Python and the command in the same words."""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict, fields
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flour.core.errors import ParameterError
from runtime.cli.errors import ArgumentError
from runtime.cli.serving import server_settings
from runtime.http import ServerSettings

NUMBERS = [each.name for each in fields(ServerSettings) if each.type in {"int", "float"}]
WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in NUMBERS for value in (-1, nan, inf, -inf, True, "1", None)),
    *((each.name, 1.5) for each in fields(ServerSettings) if each.type == "int"),
    *(
        (each.name, value)
        for each in fields(ServerSettings)
        if each.type == "bool"
        for value in (1, "no")
    ),
    *((each.name, 3) for each in fields(ServerSettings) if "str" in str(each.type)),
    *(("port", 65536), ("batch_rows", 0), ("access_log_share", 1.5), ("trace_stages", 2)),
    *((name, 0) for name in ("max_body", "max_connections", "backlog", "body_rate")),
    *((name, 0) for name in ("header_seconds", "body_seconds", "idle_seconds", "write_seconds")),
    ("explain_rows", 0),
    *(("max_header", size) for size in (0, 1, 127)),
    *((each.name, 1e300) for each in fields(ServerSettings) if each.type == "float"),
    *((each.name, 1 << 80) for each in fields(ServerSettings) if each.type == "int"),
    *(("host", value) for value in ("", None)),
    *(("unix_mode", value) for value in ("", "66", "668", "0600", 600, None)),
    *(
        ("tenant_header", value)
        for value in (
            *("", " ", "x tenant", "x-tenant\r\nx: y", "x:y", "x\0", "tenänt", "x-tenant\n"),
            *("Authorization", "cookie", "Proxy-Authorization"),
        )
    ),
]


@pytest.mark.parametrize("name", sorted({name for name, _ in WRONG}))
def test_a_wrong_value_is_refused_when_settings_are_made(name: str) -> None:
    usual = ServerSettings.__dataclass_fields__[name].default
    for value in (value for each, value in WRONG if each == name):
        with pytest.raises(ParameterError, match=f"^{name} is ") as refused:
            ServerSettings(**{name: value})
        assert refused.value.where == f"ServerSettings.{name}"
        assert refused.value.found == repr(value)[:80]
        assert refused.value.hint == f"the usual value is {usual!r}"


def test_the_least_values_are_taken() -> None:
    made = ServerSettings(max_body=1, max_header=128, backlog=1, tenant_header="X_Tenant.1", port=0)
    assert (made.max_body, made.tenant_header) == (1, "X_Tenant.1")


def test_the_setting_that_is_wrong_is_named_among_others() -> None:
    given = Namespace(host="", port=0, tokens=None, set=["max_body=1M", "port=70000"])
    with pytest.raises(ArgumentError, match="host is a text") as refused:
        server_settings(given)
    assert refused.value.where == "--host "
    given.host = "::1"
    with pytest.raises(ArgumentError, match="port is") as refused:
        server_settings(given)
    assert (refused.value.where, refused.value.found) == ("--set port=70000", "70000")
    assert refused.value.hint == "the usual value is 8000"


WRONG_TEXTS = [
    *((name, text) for name in NUMBERS for text in ("-1", "nan", "x", "", "true")),
    *((each.name, "1.5") for each in fields(ServerSettings) if each.type == "int"),
    *((each.name, "1") for each in fields(ServerSettings) if each.type == "bool"),
    *(("port", "65536"), ("batch_rows", "0"), ("trace_stages", "2"), ("idle_seconds", "inf")),
    *(("max_body", "0"), ("max_header", "0"), ("max_connections", "0"), ("write_seconds", "0")),
    *(("unix_mode", ""), ("unix_mode", "999")),
    *(("tenant_header", ""), ("tenant_header", "x\r\ny"), ("tenant_header", "Cookie")),
]


@pytest.mark.parametrize("name", sorted({name for name, _ in WRONG_TEXTS}))
def test_the_command_refuses_it_in_the_same_words(name: str) -> None:
    for text in (text for each, text in WRONG_TEXTS if each == name):
        refused_alike(name, text)


def refused_alike(name: str, text: str) -> None:
    """The command and Python have one message for a wrong value."""
    value: object = text
    with suppress(ValueError):
        value = float(text) if "float" in str(ServerSettings.__annotations__[name]) else int(text)
    with pytest.raises(ParameterError) as there:
        ServerSettings(**{name: value})  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ArgumentError) as here:
        server_settings(Namespace(host="::1", port=0, tokens=None, set=[f"{name}={text}"]))
    assert here.value.what == there.value.what
    assert here.value.where == f"--set {name}={text}"


def test_settings_are_kept_as_they_are_sent_to_workers(tmp_path: Path) -> None:
    here = Path.cwd()
    made = ServerSettings(tokens="a", answers=Path("b"), access_log=tmp_path / "c", batch_wait=1)
    assert (made.tokens, made.answers) == (str(here / "a"), str(here / "b"))
    assert made.access_log == str(tmp_path / "c")
    assert ServerSettings(access_log="-").access_log == "-"
    numbers: dict[str, Any] = {"max_body": np.int64(7), "batch_wait": np.float32(0.5)}
    assert json.dumps(asdict(ServerSettings(**numbers)))
    assert json.loads(json.dumps(asdict(made))) == asdict(made)


def test_an_empty_path_of_tokens_is_no_open_server() -> None:
    """As of a variable of the shell that is not set."""
    with pytest.raises(ParameterError, match="tokens is a path that is not empty, or None"):
        ServerSettings(tokens="")
    for given in ({"tokens": "", "set": []}, {"tokens": None, "set": ["tokens="]}):
        with pytest.raises(ArgumentError, match="tokens is a path"):
            server_settings(Namespace(host="::1", port=0, **given))
    assert ServerSettings(tokens=None) == ServerSettings()
