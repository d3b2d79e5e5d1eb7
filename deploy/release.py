"""The check of a release's tag, and the notes of a release: ``release.py check v1.2.3``, ``release.py notes v1.2.3``.

The version stands in pyproject.toml, the notes in CHANGELOG.md. It needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_TAG = re.compile(r"v(\d+\.\d+\.\d+)")


def problems(tag: str, version: str, changelog: str) -> list[str]:
    """Return the reasons not to release ``tag``, given the version of the package and the text of the changelog."""
    if not (match := _TAG.fullmatch(tag)):
        return [f"the tag {tag!r} is not of the form v1.2.3"]
    found = []
    if match[1] != version:
        found.append(f"the tag {tag} is not the version of pyproject.toml, {version}")
    if not notes(match[1], changelog):
        found.append(f"CHANGELOG.md has no notes of {match[1]}")
    return found


def notes(version: str, changelog: str) -> str:
    """Return what the changelog says of a version; empty if it says nothing."""
    section = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", changelog, re.M | re.S)
    return section[1].strip() if section else ""


def main(command: str, tag: str) -> None:
    """Run one of the commands ``check`` and ``notes``."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    if found := problems(tag, version, changelog):
        sys.exit("\n".join(found))
    if command == "notes":
        print(notes(version, changelog))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {"check", "notes"}:
        sys.exit("usage: release.py check|notes vX.Y.Z")
    main(*sys.argv[1:])
