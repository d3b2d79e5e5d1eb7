"""Reads the manifests of the release from a folder with the layout of ``deploy/k8s``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tidelog_operator.manifests import Sources
from tidelog_operator.resources import CONTROLLER, NODE

DEFAULT_FOLDER = Path(__file__).parents[2] / "deploy" / "k8s"
"""The folder of a checkout."""


def read_sources(folder: Path) -> Sources:
    """Return the manifests of a folder.

    Raises:
        OSError: a file cannot be read.
    """
    base, secured = folder / "base", folder / "overlays" / "secured"
    files = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    objects = tuple(each for file in files for each in yaml.safe_load_all((base / file).read_text()))
    patches = yaml.safe_load((secured / "kustomization.yaml").read_text())["patches"]
    return Sources(
        objects,
        _properties(base),
        _properties(secured),
        tuple((patch["target"], _operations(secured / patch["path"])) for patch in patches),
        _operations(folder / "components" / "rack" / "node.yaml"),
    )


def _properties(folder: Path) -> dict[str, str]:
    return {role: (folder / f"{role}.properties").read_text() for role in (CONTROLLER, NODE)}


def _operations(file: Path) -> list[Any]:
    operations: list[Any] = yaml.safe_load(file.read_text())
    return operations
