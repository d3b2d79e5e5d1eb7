"""Functions of the product stay short enough to be read at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("client/tidelog", "node/tidelog_node", "quorum/tidelog_quorum")
_GENERATED = _ROOT / "client/tidelog/v1"
_MOST_LINES = 70


def _functions() -> Iterator[tuple[str, int]]:
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            if _GENERATED in path.parents:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = (node.end_lineno or node.lineno) - node.lineno + 1
                    yield f"{path.relative_to(_ROOT)}: {node.name}", lines


@pytest.mark.costly
def test_function_has_at_most_70_lines() -> None:
    lengths = list(_functions())
    assert len(lengths) > 1_000, "the packages were found"
    assert {name: lines for name, lines in lengths if lines > _MOST_LINES} == {}
