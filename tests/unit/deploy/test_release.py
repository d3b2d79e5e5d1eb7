"""The check of a release, and the files that a release consists of."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from programs import load_program

import tidelog

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


@pytest.fixture(scope="module")
def version(repository: Path) -> str:
    text: str = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    return text


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v1.2.0", "1.2.0", []),
        ("v1.2.0", "1.1.0", ["the tag v1.2.0 is not the version of pyproject.toml, 1.1.0"]),
        ("v1.3.0", "1.3.0", ["CHANGELOG.md has no notes of 1.3.0"]),
        ("v1.1.0", "1.1.0", ["the newest version in CHANGELOG.md is 1.2.0, not 1.1.0"]),
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


def test_changelog_has_notes_of_the_version(release: ModuleType, repository: Path, version: str) -> None:
    assert release.problems(f"v{version}", version, (repository / "CHANGELOG.md").read_text()) == []


def test_every_place_with_a_version_has_that_of_the_package(
    release: ModuleType, repository: Path, version: str
) -> None:
    assert release.other_versions(repository, version) == []


def test_package_that_runs_has_the_version(version: str) -> None:
    assert tidelog.__version__ == tidelog.version() == version


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """A copy of the files that may have a version."""
    for name in ("pyproject.toml", "Dockerfile", "Makefile", "compose.yaml", "CHANGELOG.md"):
        shutil.copyfile(repository / name, tmp_path / name)
    for name in ("deploy", "docs"):
        shutil.copytree(repository / name, tmp_path / name, ignore=shutil.ignore_patterns("images", "__pycache__"))
    return tmp_path


def test_setting_a_version_changes_every_place_and_dates_the_unreleased_notes(
    release: ModuleType, checkout: Path
) -> None:
    before = (checkout / "CHANGELOG.md").read_text()
    release.set_version(checkout, "7.8.9", "2031-02-03")
    after = (checkout / "CHANGELOG.md").read_text()
    assert release.other_versions(checkout, "7.8.9") == []
    assert release.problems("v7.8.9", "7.8.9", after) == []
    assert release.notes("7.8.9", after) == release.notes("Unreleased", before)
    assert release.notes("Unreleased", after) == ""
    assert "\n## [7.8.9] - 2031-02-03\n" in after
    assert "/compare/v7.8.9...HEAD\n[7.8.9]: https://github.com/tidelog/tidelog/releases/tag/v7.8.9\n" in after
    with pytest.raises(ValueError, match=r"7\.8\.9 already"):
        release.set_version(checkout, "7.8.9", "2031-02-03")
    with pytest.raises(ValueError, match="no notes of unreleased changes"):
        release.set_version(checkout, "7.8.10", "2031-02-03")


def test_place_with_another_version_is_named(release: ModuleType, checkout: Path) -> None:
    chart = checkout / "deploy" / "helm" / "tidelog-operator" / "Chart.yaml"
    version = yaml.safe_load(chart.read_text())["appVersion"]
    chart.write_text(chart.read_text().replace(f"appVersion: {version}", "appVersion: 0.0.1"))
    place = "deploy/helm/tidelog-operator/Chart.yaml:6"
    assert release.other_versions(checkout, version) == [f"{place} has appVersion: 0.0.1, not {version}"]


def test_actions_are_pinned_by_commit_and_get_no_credentials(repository: Path) -> None:
    for path in (repository / ".github" / "workflows").glob("*.yml"):
        pins = re.findall(r"uses: (?!\./)(.*)", path.read_text())
        assert [pin for pin in pins if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", pin)] == [], path
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job.get("steps", ()):
                assert "${{ github." not in step.get("run", ""), f"{path}: use an environment variable"
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, path


def test_every_python_that_is_supported_has_wheels_and_tests(repository: Path) -> None:
    pyproject = tomllib.loads((repository / "pyproject.toml").read_text())
    versions = [
        found[1]
        for each in pyproject["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
    ]
    tests = yaml.safe_load((repository / ".github" / "workflows" / "tests.yml").read_text())
    assert tests["jobs"]["test"]["strategy"]["matrix"]["python"] == versions
    builds = " ".join(f"cp{each.replace('.', '')}-*" for each in versions)
    assert pyproject["tool"]["cibuildwheel"]["build"] == builds
    assert pyproject["project"]["requires-python"] == f">={versions[0]}"


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
