"""The documentation site builds without a warning: every page is reachable, every link and anchor leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[2]
_REMOTE = re.compile(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//""")


def build(site: Path, config: Path = REPOSITORY / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_site_contains_pages_from_the_top_and_the_api_reference(site: Path) -> None:
    for name in ("index", "architecture", "contributing", "kubernetes", "decisions/0001-own-raft-core"):
        assert (site / f"{name}.html").exists()
    assert "tidelog.Producer.produce" in (site / "api" / "tidelog.html").read_text()


def test_site_refers_to_no_other_host_for_its_parts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if _REMOTE.search(page.read_text())] == []


def test_site_hides_the_comments_of_the_tests(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if "<!-- setup" in page.read_text()] == []


def test_site_with_links_to_nowhere_does_not_build_and_names_each(tmp_path: Path) -> None:
    links = ("nowhere.md", "client.md#nowhere", "../nowhere.py")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "client.md").write_text("# Page\n" + "".join(f"\n[text]({link})\n" for link in links))
    validation = "  links: {not_found: warn, anchors: warn, unrecognized_links: warn}\n"
    config = tmp_path / "mkdocs.yml"
    hooks = f"hooks: [{REPOSITORY / 'docs' / 'site_hooks.py'}]\n"
    nav = "nav:\n  - index.md\n  - client.md\n"
    config.write_text(f"site_name: Test\nsite_dir: site\n{nav}{hooks}validation:\n{validation}")
    failed = build(tmp_path / "site", config)
    assert failed.returncode != 0
    warnings = [line for line in (failed.stdout + failed.stderr).splitlines() if "WARNING" in line]
    assert [link for link in links if not any(f"'{link}'" in line for line in warnings)] == []
