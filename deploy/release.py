"""The version of a release in every file that has it: ``release.py check v1.2.3``, ``notes v1.2.3`` and ``set 1.2.3``.

pyproject.toml decides; the tags of images, the Helm chart and CHANGELOG.md follow. The script needs Python alone.
"""

from __future__ import annotations

import datetime
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_NUMBER = r"\d+\.\d+\.\d+"
_TAG = re.compile(rf"v({_NUMBER})")
_VERSION = re.compile(
    rf"""(?P<before>\btidelog(?:-[a-z]+)?:  # the tag of an image
    |^ARG\ VERSION=                         # in a Dockerfile
    |^(?:version|appVersion):\              # of a Helm chart
    |^version\ =\ ")                        # in pyproject.toml
    (?P<version>{_NUMBER})""",
    re.MULTILINE | re.VERBOSE,
)
_FILES = ("pyproject.toml", "Dockerfile", "Makefile", "compose.yaml")
_FOLDERS = ("deploy", "docs", "tests/kubernetes", "tests/support")
_SUFFIXES = {"", ".md", ".properties", ".py", ".yaml"}
_UNRELEASED = "## [Unreleased]\n"
_LINK = re.compile(rf"^\[Unreleased\]: (?P<url>\S+)/compare/v{_NUMBER}\.\.\.HEAD\n", re.MULTILINE)


def problems(tag: str, version: str, changelog: str) -> list[str]:
    """Return the reasons not to release ``tag``, given the version of the package and the text of the changelog."""
    if not (match := _TAG.fullmatch(tag)):
        return [f"the tag {tag!r} is not of the form v1.2.3"]
    found = []
    if match[1] != version:
        found.append(f"the tag {tag} is not the version of pyproject.toml, {version}")
    newest = re.search(rf"^## \[({_NUMBER})\]", changelog, re.MULTILINE)
    if not notes(match[1], changelog):
        found.append(f"CHANGELOG.md has no notes of {match[1]}")
    elif newest is not None and newest[1] != match[1]:
        found.append(f"the newest version in CHANGELOG.md is {newest[1]}, not {match[1]}")
    return found


def other_versions(repository: Path, version: str) -> list[str]:
    """Return the places of the repository that have a version other than ``version``."""
    found = []
    for path in _files(repository):
        text = path.read_text()
        for match in _VERSION.finditer(text):
            if match["version"] != version:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(repository)}:{line} has {match[0].strip()}, not {version}")
    return found


def set_version(repository: Path, version: str, date: str) -> None:
    """Write ``version`` everywhere, and move the notes of unreleased changes to a section of it.

    Raises:
        ValueError: there are no unreleased changes, or there is a section of ``version`` already.
    """
    changelog = repository / "CHANGELOG.md"
    text = changelog.read_text()
    if notes(version, text):
        raise ValueError(f"CHANGELOG.md has notes of {version} already")
    if not notes("Unreleased", text):
        raise ValueError("CHANGELOG.md has no notes of unreleased changes")
    text = text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {date}\n", 1)
    links = rf"[Unreleased]: \g<url>/compare/v{version}...HEAD\n[{version}]: \g<url>/releases/tag/v{version}\n"
    changelog.write_text(_LINK.sub(links, text))
    for path in _files(repository):
        text = path.read_text()
        changed = _VERSION.sub(rf"\g<before>{version}", text)
        if changed != text:
            path.write_text(changed)


def notes(version: str, changelog: str) -> str:
    """Return what the changelog says of a version; empty if it says nothing."""
    section = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", changelog, re.M | re.S)
    return section[1].strip() if section else ""


def _files(repository: Path) -> Iterator[Path]:
    """Yield the files that may have a version, except the changelog."""
    yield from (repository / name for name in _FILES)
    for folder in _FOLDERS:
        for path in sorted((repository / folder).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                yield path


def main(command: str, argument: str) -> None:
    """Run one of the commands ``check``, ``notes`` and ``set``."""
    if command == "set":
        if not re.fullmatch(_NUMBER, argument):
            sys.exit(f"the version {argument!r} is not of the form 1.2.3")
        try:
            set_version(REPOSITORY, argument, datetime.datetime.now(datetime.UTC).date().isoformat())
        except ValueError as error:
            sys.exit(str(error))
        return
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    if found := [*problems(argument, version, changelog), *other_versions(REPOSITORY, version)]:
        sys.exit("\n".join(found))
    if command == "notes":
        print(notes(version, changelog))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {"check", "notes", "set"}:
        sys.exit("usage: release.py check|notes vX.Y.Z, or release.py set X.Y.Z")
    main(*sys.argv[1:])
