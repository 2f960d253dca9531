"""The documentation as a site: `scripts/docs` builds it with Sphinx."""

import runpy
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]

project = "Pretzel"
release = runpy.run_path(str(_ROOT / "scripts" / "version.py"))["version"]()
html_title = f"Pretzel {release}"
html_baseurl = _PROJECT["urls"]["Documentation"]
html_theme = "furo"
extensions = ["myst_parser"]
# Warnings as GitHub shows them, too.
myst_enable_extensions = ["alert"]
# Titles are addresses, named as GitHub names them: pages are read there, too.
myst_heading_anchors = 4
# Pages are also read as plain Markdown, where highlighting of shell and C snippets may fail.
suppress_warnings = ["misc.highlighting_failure"]
html_show_sphinx = False
html_copy_source = False
