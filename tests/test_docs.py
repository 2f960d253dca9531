"""The documents stay true: code runs, links lead somewhere, tables are complete."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from flour.core.pages import BASE
from tests.house import PACKAGES, ROOT, environment_names, files, parsed, run_python, shown

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


#: Runs pages in processes of their own, which begin with what all of them import, each in an
#: empty directory.
_FORKS = """
import json, os, sys, tempfile
sys.path.insert(0, os.getcwd())
import numpy, pandas, sklearn.linear_model, sklearn.pipeline
import flour, oven, runtime
failed = []
for page, program in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        sys.argv = ["-c"]
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            exec(compile(program, page, "exec"), globals())
            sys.exit()
    if os.waitpid(child, 0)[1]:
        failed.append(page)
sys.exit(", ".join(failed) or 0)
"""


@pytest.mark.parametrize("part", range(6))
def test_code_blocks_run(part: int) -> None:
    pages = {page_name(page): programs(page) for page in WITH_CODE[part::6]}
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


def test_addresses_in_messages_have_their_page_and_title() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert project["urls"]["Documentation"] == BASE
    named: list[tuple[str, list[str]]] = [
        (shown(path, node), [ast.literal_eval(each) for each in node.args])
        for path in files(*PACKAGES)
        if "from flour.core.pages import page" in text_of(path)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "page"
    ]
    assert len(named) > 3
    for place, (name, *title) in named:
        file = ROOT / "docs" / f"{name}.md"
        assert file.exists(), place
        # Titles with other characters have one address here and another on the site.
        assert all(re.fullmatch(r"[a-z-]+", each) for each in title), place
        assert {*title} <= _anchors(file), place


def test_no_message_names_a_file_of_the_documentation() -> None:
    """An installed package has no docs; comments and docstrings are for readers of the source."""
    messages = [
        shown(path, node)
        for path in files(*PACKAGES)
        if "docs/" in text_of(path)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"\bdocs/[\w/-]+\.md", node.value) and not _is_docstring(path, node)
    ]
    assert messages == []


def _is_docstring(path: Path, node: ast.Constant) -> bool:
    return any(
        isinstance(each, ast.Expr) and each.value is node
        for owner in ast.walk(parsed(path))
        for each in getattr(owner, "body", ())
        if isinstance(getattr(owner, "body", ()), list)
    )


def test_scripts_that_are_named_exist() -> None:
    named = {each for page in PAGES for each in re.findall(r"\bscripts/[\w.-]*\w", text_of(page))}
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_every_page_is_in_the_index_of_its_part() -> None:
    indexes = [*files("docs", suffix="index.md"), ROOT / "docs" / "contributing" / "decisions.md"]
    listed = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in indexes
        for target in _links(index)
    }
    pages = [page for page in files("docs", suffix=".md") if page != ROOT / "docs" / "index.md"]
    assert [page_name(page) for page in pages if page not in listed] == []


#: The parts that users read. Pages that follow from the code, and tables of contents, are not read.
USERS = ("tutorials", "how-to", "reference", "explanation")
WRITTEN = [
    page
    for part in USERS
    for page in files(f"docs/{part}", suffix=".md")
    if page.name != "index.md" and "Generated by `scripts/generate.py`" not in text_of(page)
]
GLOSSARY = ROOT / "docs" / "explanation" / "glossary.md"


def test_the_part_for_users_is_short() -> None:
    pages = [ROOT / "README.md", *WRITTEN]
    assert sum(len(BLOCK.sub("", text_of(page)).split()) for page in pages) <= 25_400


@pytest.mark.parametrize("part", ["reference", "explanation"])
def test_sentences_and_paragraphs_are_short(part: str) -> None:
    for page in (each for each in WRITTEN if each.parent.name == part and each != GLOSSARY):
        said = [each for each in _paragraphs(page) if "|" not in each]
        assert [each for each in said if len(each.split()) > 90] == [], page_name(page)
        sentences = [each.split() for one in said for each in re.split(r"[.!?:]\s+", one)]
        mean = sum(map(len, sentences)) / len(sentences)
        assert mean <= 17, f"{page_name(page)}: {mean:.1f} words a sentence"


def _paragraphs(page: Path) -> Iterator[str]:
    prose = BLOCK.sub("\n", text_of(page))
    prose = re.sub(r"`[^`]*`", "code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>#|]|\d+\.) ?)", prose):
        if words := part.strip(" |-*>#\n"):
            yield words


def test_the_glossary_is_short_and_linked() -> None:
    words = re.findall(r"^\| (?!word)([a-z ,]+) \|", text_of(GLOSSARY), re.MULTILINE)
    names = [name for each in words for name in each.split(", ")]
    assert 10 <= len(names) <= 20
    private = re.compile(rf"\b({'|'.join(names)})\b")
    for page in WRITTEN:
        said = " ".join(each for each in _paragraphs(page) if "|" not in each)
        linked = "glossary.md" in text_of(page) or page == GLOSSARY
        # Elsewhere these are words of the trade; the tests of how-to pages have those that are not.
        if page.parent.name in {"reference", "explanation"}:
            assert linked or not private.search(said), page_name(page)


def test_the_reference_is_about_what_users_see() -> None:
    """No paths of sources, and no decision as the only source of a fact."""
    sources = re.compile(r"\b(flour|objectstore|oven|runtime|scheduler|tests|bench)/\w|decisions/")
    pages = [page for page in WRITTEN if page.parent.name in {"reference", "explanation"}]
    assert [page_name(page) for page in pages if sources.search(text_of(page))] == []


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
    page = ROOT / "docs" / "reference" / "debugging.md"
    rows = re.findall(r"^\| *`(PRETZEL_[A-Z_]+)", text_of(page), re.MULTILINE)
    assert sorted(rows) == sorted(environment_names())


def _reference(page: str) -> str:
    return text_of(ROOT / "docs" / "reference" / f"{page}.md")


def test_the_reference_has_every_flag_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    from runtime.cli.program import COMMANDS, run

    page = _reference("commands")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for command in COMMANDS:
        run([command.name, "--help"])
        usage = capsys.readouterr().out.split("\n\n")[0]
        flags = {*re.findall(r"(?<![\w-])--?[a-z][\w-]*", usage)} - {"-h"}
        assert [each for each in flags if each not in sections[command.name]] == []


def test_the_reference_has_every_setting_and_extra() -> None:
    from runtime.http import ServerSettings
    from runtime.repository.notes_file import KNOWN

    page = _reference("settings")
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    names = [each.name for each in fields(ServerSettings)]
    names += [name for name, kind in KNOWN.items() if not isinstance(kind, dict)]
    names += [f"{table}.{name}" for table in ("watch", "keep") for name in KNOWN[table]]
    names += project["optional-dependencies"]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_the_reference_has_every_metric() -> None:
    found: set[str] = set()
    for path in files("runtime/http"):
        found |= set(re.findall(r"\b(?:pretzel|nv)_[a-z_]*[a-z]\b", text_of(path)))
    inner = {"pretzel_drift_windows"}  # becomes the other figures of drift
    page = _reference("metrics")
    assert [each for each in sorted(found - inner) if f"`{each}`" not in page] == []


def test_the_reference_has_every_route_and_name() -> None:
    import pretzel
    from runtime.http.table import ROUTES

    page = _reference("routes")
    assert [each.path for each in ROUTES if not each.hidden and f"`{each.path}`" not in page] == []
    page = _reference("python")
    modules = {"flour"}  # has a page of its own
    names = [name for name in pretzel.__all__ if name not in modules]
    assert [name for name in names if f"# pretzel.{name}\n" not in page] == []


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
