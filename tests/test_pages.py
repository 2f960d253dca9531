"""Tutorials and how-to pages: short, in plain words, and what they tell the reader to do works."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import ROOT, files, run_python, until

sys.path.insert(0, str(ROOT / "scripts"))

from notebooks import notebook

BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
#: The most words of a page, code apart; of the README, code included.
LIMITS = {"docs/tutorials": 900, "docs/how-to": 500}
PAGES = {
    page.relative_to(ROOT).as_posix(): limit
    for folder, limit in LIMITS.items()
    for page in files(folder, suffix=".md")
    if page.name != "index.md"
}
#: Words that mean something in Pretzel's sources alone.
PRIVATE = re.compile(
    r"\b(bak(e|es|ed|ing)|flour|ovens?|entry|entries|black|images?|templates?|packs?|tiers?|"
    r"doors?|taps?|leases?|parity|contestants?|gauges?|floors?)\b",
    re.IGNORECASE,
)
USUAL = re.compile(r"(container|docker) images?|\[[^\]]*\]\([^)]*glossary[^)]*\)", re.IGNORECASE)


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def paragraphs(page: str) -> Iterator[str]:
    """Paragraphs, bullets and table rows, without code, links' targets and marks."""
    text = BLOCK.sub("\n", read(page))
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>#|]|\d+\.) ?)", text):
        if words := part.strip(" |-*>#\n"):
            yield words


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short(page: str) -> None:
    assert len(BLOCK.sub("", read(page)).split()) <= PAGES[page]


def test_the_readme_is_short() -> None:
    assert len(read("README.md").split()) <= 900


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_sentences_and_paragraphs_are_short(page: str) -> None:
    said = [each for each in paragraphs(page) if "|" not in each]
    assert [each for each in said if len(each.split()) > 90] == []
    sentences = [each.split() for part in said for each in re.split(r"[.!?:]\s+", part)]
    mean = sum(map(len, sentences)) / len(sentences)
    assert mean <= 17, f"{mean:.1f} words a sentence"


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_words_are_the_readers(page: str) -> None:
    said = USUAL.sub("", BLOCK.sub("", read(page)))
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", said)
    assert sorted({found[0] for found in PRIVATE.finditer(prose)}) == []


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_code_uses_one_package(page: str) -> None:
    code = "\n".join(block["code"] for block in BLOCK.finditer(read(page)))
    others = r"^\s*(?:import|from) (?:flour|oven|runtime|scheduler)\b.*"
    assert re.findall(others, code, re.MULTILINE) == []


def test_every_extra_is_told() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"].keys() - {"test", "check", "docs", "dev"}
    told = set(re.findall(r"`([a-z]+)`", read("docs/how-to/install.md")))
    assert extras <= told
    newest = project["requires-python"].rpartition("<3.")[2]
    assert f"CPython 3.10 to 3.{int(newest) - 1} on Linux" in read("docs/how-to/install.md")


def test_pictures_are_small() -> None:
    pictures = files("docs/pictures", suffix=".png")
    assert {path.stem for path in pictures} >= {"status", "explain", "shares", "board", "progress"}
    assert [path.name for path in pictures if path.stat().st_size > 100_000] == []


def test_tutorials_become_notebooks() -> None:
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        made = notebook(page)
        json.dumps(made)
        cells = [each["source"] for each in made["cells"] if each["cell_type"] == "code"]
        text = read(page.relative_to(ROOT).as_posix())
        shown = [b["code"].rstrip() for b in BLOCK.finditer(text) if b["kind"] == "python"]
        assert cells == shown


# --- what a reader does ----------------------------------------------------------------------


class Reader:
    """A reader with an empty directory, who copies a page's code and commands."""

    def __init__(self, page: str, directory: Path) -> None:
        self.page, self.directory = page, directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        bin_ = directory / ".bin"
        bin_.mkdir()
        shim = bin_ / "pretzel"
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m runtime "$@"\n')
        shim.chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{directory}",
        }
        self.servers: list[subprocess.Popen[bytes]] = []

    def python(self) -> None:
        """Run the page's `python` blocks as one program."""
        blocks = [b["code"] for b in BLOCK.finditer(read(self.page)) if b["kind"] == "python"]
        if blocks:
            code = f"import os; os.chdir({str(self.directory)!r})\n" + "\n".join(blocks)
            run_python(code, timeout=600, environment={"PYTHONPATH": f"{ROOT}:{self.directory}"})

    def files(self) -> None:
        """Write the blocks whose first line names a file: `# score.py`."""
        for block in BLOCK.finditer(read(self.page)):
            if named := re.match(r"(?:#|//) ([\w/.-]+\.\w+)\n", block["code"]):
                path = self.directory / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block["code"].replace(":8000", f":{self.port}"))

    def commands(self) -> None:
        """Run the `console` blocks, and compare answers in JSON with those that are shown."""
        for block in BLOCK.finditer(read(self.page)):
            if block["kind"] == "console":
                for said in re.split(r"^\$ ", block["code"], flags=re.MULTILINE)[1:]:
                    self._command(*said.partition("\n")[::2])

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def _command(self, command: str, shown: str) -> None:
        while command.endswith("\\") or command.count("'") % 2:
            more, _, shown = shown.partition("\n")
            command += f"\n{more}"
        command = command.replace("8000", str(self.port))
        if re.match(r"(PRETZEL_\w+=\S+ )?(pretzel serve|uvicorn|flask)\b", command):
            self._serve(command)
            return
        done = self._run(command)
        if done.returncode and command.startswith("sleep "):  # a busy machine is later
            until(lambda: self._run(command).returncode == 0, seconds=60)
            done = self._run(command)
        expected = 3 if "exit code 3" in shown else 0
        assert done.returncode == expected, f"{command}\n{done.stdout}{done.stderr}"
        if shown.startswith(("{", "[")):
            assert _rounded(done.stdout) == _rounded(shown), command

    def _serve(self, command: str) -> None:
        if str(self.port) not in command:
            command += f" --port {self.port}"
        with (self.directory / ".server").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=self.directory,
                env=self.env,
                stdout=log,
                stderr=log,
            )
        self.servers.append(server)
        loads = command.startswith("pretzel")  # its folder, while it listens already
        until(lambda: server.poll() is not None or self._listening(loads), seconds=60)
        assert server.poll() is None, (self.directory / ".server").read_text()

    def _listening(self, loads: bool) -> bool:  # noqa: FBT001 (a fact of the command)
        with socket.socket() as probe:
            listens = probe.connect_ex(("127.0.0.1", self.port)) == 0
        said = (self.directory / ".server").read_text()
        return listens and (not loads or " at http" in said or '"listening"' in said)

    def close(self) -> None:
        """End the servers that were started."""
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def _rounded(text: str) -> object:
    """A value of JSON with its numbers to six digits."""
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "empty"
    made.mkdir()
    return made


#: Run by tests/integrations/test_web_pages.py, as they need packages of their own.
ELSEWHERE = {
    f"docs/{page}.md"
    for page in ("how-to/fastapi", "how-to/flask-celery", "tutorials/from-fastapi")
}


@pytest.mark.apart
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in ELSEWHERE and "```console" in read(page)]
)
def test_commands_work_in_an_empty_directory(page: str, directory: Path) -> None:
    reader = Reader(page, directory)
    try:
        reader.python()
        reader.files()
        reader.commands()
    finally:
        reader.close()
