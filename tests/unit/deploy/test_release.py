"""The check of a release, and the files that a release consists of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from programs import load_program

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Later.

## [1.2.0] - 2030-01-02

### Fixed

- A bug.

## [1.1.0]

- Earlier.

[1.2.0]: https://example.com/v1.2.0
"""


@pytest.fixture(scope="module")
def release(repository: Path) -> ModuleType:
    return load_program(repository / "deploy" / "release.py")


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v1.2.0", "1.2.0", []),
        ("v1.2.0", "1.1.0", ["the tag v1.2.0 is not the version of pyproject.toml, 1.1.0"]),
        ("v1.3.0", "1.3.0", ["CHANGELOG.md has no notes of 1.3.0"]),
        ("1.2.0", "1.2.0", ["the tag '1.2.0' is not of the form v1.2.3"]),
    ],
)
def test_tag_is_released_if_it_is_the_version_and_the_changelog_has_notes_of_it(
    release: ModuleType, tag: str, version: str, said: list[str]
) -> None:
    assert release.problems(tag, version, CHANGELOG) == said


def test_notes_of_a_version_end_where_the_next_ones_begin(release: ModuleType) -> None:
    assert release.notes("1.2.0", CHANGELOG) == "### Fixed\n\n- A bug."
    assert release.notes("1.1.0", CHANGELOG) == "- Earlier."


def test_changelog_has_notes_of_the_version(release: ModuleType, repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    assert release.problems(f"v{version}", version, (repository / "CHANGELOG.md").read_text()) == []


def test_workflows_call_workflows_and_targets_that_exist(repository: Path) -> None:
    folder = repository / ".github" / "workflows"
    targets = {line.split(":")[0] for line in (repository / "Makefile").read_text().splitlines() if ": " in line}
    for path in folder.glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            if "uses" in job:
                assert (repository / job["uses"]).is_file(), job["uses"]
            commands = [step["run"] for step in job.get("steps", ()) if "run" in step]
            made = {word for command in commands if command.startswith("make ") for word in command.split()[1:]}
            assert made <= targets, path
