"""The documents stay true: code runs, links lead somewhere, tables are complete."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.house import PACKAGES, ROOT, environment_names, files, run_python

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *files("docs", suffix=".md")]
BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")


def text_of(path: Path) -> str:
    """Return the text of a page."""
    return path.read_text(encoding="utf-8")


def page_name(path: Path) -> str:
    """Return a page's name as the test report shows it."""
    return path.relative_to(ROOT).as_posix()


def programs(page: Path) -> str:
    """Return the `python` blocks of a page as one program that keeps its line numbers."""
    text = text_of(page)
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        if block["kind"].strip() == "python":
            first = text.count("\n", 0, block.start("code"))
            code = block["code"].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines).rstrip()


WITH_CODE = [page for page in PAGES if programs(page)]


def test_the_readme_has_code() -> None:
    assert ROOT / "README.md" in WITH_CODE


#: Runs pages in processes of their own, which begin with what all of them import.
_FORKS = """
import json, os, sys
import numpy, pandas, sklearn.linear_model, sklearn.pipeline
import flour, oven, runtime
failed = []
for page, program in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        sys.argv = ["-c"]
        exec(compile(program, page, "exec"), globals())
        sys.exit()
    if os.waitpid(child, 0)[1]:
        failed.append(page)
sys.exit(", ".join(failed) or 0)
"""


@pytest.mark.parametrize("part", range(4))
def test_code_blocks_run(part: int) -> None:
    pages = {page_name(page): programs(page) for page in WITH_CODE[part::4]}
    run_python(_FORKS, json.dumps(pages), timeout=600)


def test_links_lead_somewhere() -> None:
    dead = [(p, target) for p in PAGES for target in _links(p) if not _leads_somewhere(p, target)]
    assert dead == []


def _links(page: Path) -> list[str]:
    prose = BLOCK.sub("", text_of(page))
    targets = [found["target"] or found["image"] for found in LINK.finditer(prose)]
    return [each for each in targets if not re.match(r"[a-z]+:", each)]


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.*)$", BLOCK.sub("", text_of(file)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_scripts_that_are_named_exist() -> None:
    named = {each for page in PAGES for each in re.findall(r"\bscripts/[\w.-]*\w", text_of(page))}
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "00-index.md"
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in _links(index)}
    pages = [page for page in files("docs", suffix=".md") if page != index]
    assert [page_name(page) for page in pages if page not in listed] == []


def test_decisions_say_why() -> None:
    pages = files("docs/decisions", suffix=".md")
    numbers = [page.name[:4] for page in pages]
    assert sorted(numbers) == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        titles = re.findall(r"^## (\w+)$", text_of(page), re.MULTILINE)
        assert titles == ["Context", "Decision", "Consequences"], page.name


def test_the_changelog_uses_three_words() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    assert "## Unreleased" in text
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}


def test_the_table_of_environment_variables_is_true() -> None:
    page = ROOT / "docs" / "80-debugging.md"
    rows = re.findall(r"^\| *`(PRETZEL_[A-Z_]+)", text_of(page), re.MULTILINE)
    assert sorted(rows) == sorted(environment_names())


#: Integrations whose libraries may not be there.
NOT_INSTALLED = {name for name in ("ray", "spark") if not find_spec(name)}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__, "not a package yet"
    names: list[str] = getattr(module, "__all__", [])
    found = {name: getattr(module, name) for name in names if name not in NOT_INSTALLED}
    bare = [name for name, value in found.items() if _needs_docstring(value)]
    assert bare == [], "no docstring"
    prose = "\n".join(text_of(page) for page in PAGES)
    missing = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", prose)]
    assert missing == [], "named on no page of README.md or docs/"


def _needs_docstring(value: object) -> bool:
    documentable = inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
    return documentable and not inspect.getdoc(value)
