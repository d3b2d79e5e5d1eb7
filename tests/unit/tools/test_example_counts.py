"""Every test that names its number of examples takes few of them with the profile ``quick``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[2]
_QUICK = {"max_examples": 5, "stateful_step_count": 20}


def _larger(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of numbers that the profile does not limit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _QUICK:
            number = node.value.value if isinstance(node.value, ast.Constant) else None
            if isinstance(number, int) and number > _QUICK[node.arg]:
                yield node.value.lineno


@pytest.mark.costly
def test_number_of_examples_follows_the_profile() -> None:
    texts = {path: path.read_text() for path in sorted((_TESTS / "unit").rglob("*.py"))}
    lines = [
        f"{path.relative_to(_TESTS)}:{line}"
        for path, text in texts.items()
        if any(name in text for name in _QUICK)
        for line in _larger(ast.parse(text))
    ]
    assert lines == [], "call examples() or steps() of example_counts"


def test_larger_number_is_found() -> None:
    text = "settings(max_examples=5)\nsettings(max_examples=6)\nsettings(max_examples=examples(9))"
    assert [*_larger(ast.parse(text))] == [2]
