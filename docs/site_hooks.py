"""MkDocs hooks: pages from outside of ``docs/``, links that work in the repository and on the site, no test markers.

Pages link to each other and to files of the repository by relative paths, as code hosts show them. On the site, a link
to a page outside of ``docs/`` leads to its copy, and a link to any other file becomes plain text. A link to a file that
does not exist stays as it is, so that ``mkdocs build --strict`` reports it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
COPIES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "deploy/README.md": "kubernetes.md",
}
"""Pages outside of ``docs/``, by path in the repository, and their names on the site."""

_SOURCES = {site: source for source, site in COPIES.items()}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace patterns such as ``decisions/*.md`` in the navigation by the pages that match them."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of ``docs/``."""
    for source, site in COPIES.items():
        files.append(File.generated(config, site, content=(REPOSITORY / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove the tests' comments from a page and point its links at pages of the site."""
    site = page.file.src_uri
    source = _SOURCES.get(site, f"docs/{site}")
    parts, end = [], 0
    for fence in _FENCED.finditer(markdown):
        parts += [_prose(markdown[end : fence.start()], source, site), fence[0]]
        end = fence.end()
    return "".join([*parts, _prose(markdown[end:], source, site)])


def _prose(text: str, source: str, site: str) -> str:
    return _LINK.sub(lambda link: _relinked(link, source, site), _COMMENT.sub("", text))


def _relinked(link: re.Match[str], source: str, site: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
    page = COPIES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
    if page is not None and page.endswith(".md"):
        return f"[{link['text']}]({posixpath.relpath(page, posixpath.dirname(site) or '.')}{link['anchor'] or ''})"
    return link["text"] if (REPOSITORY / target).exists() else link[0]


def _expanded(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_expanded(item) for item in nav]
    if isinstance(nav, dict):
        return {title: _expanded(item) for title, item in nav.items()}
    if "*" not in nav:
        return nav
    docs = REPOSITORY / "docs"
    found = sorted(docs.glob(nav), key=lambda path: (path.name != "README.md", path.name))
    return [path.relative_to(docs).as_posix() for path in found]
