"""The map of the protocol's rules in ARCHITECTURE.md names functions and classes that exist."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ARCHITECTURE = Path(__file__).parents[3] / "ARCHITECTURE.md"


def rules() -> list[str]:
    """Return the names in the last column of the section's tables."""
    section = ARCHITECTURE.read_text().partition("## The rules of the protocol\n")[2].partition("\n## ")[0]
    return re.findall(r"\| `([\w.]+)` \|$", section, re.MULTILINE)


def test_architecture_maps_the_rules_of_every_part() -> None:
    assert len(rules()) > 40


@pytest.mark.parametrize("name", rules())
def test_architecture_names_a_function_that_decides_a_rule(name: str) -> None:
    assert callable(target := pkgutil.resolve_name(name)) or isinstance(target, property)
