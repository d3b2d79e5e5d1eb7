"""A bug that is planted into the real cores while the simulation runs, as patches of their classes and modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Patch = tuple[Any, str, Any]
"""What to patch, under which name, with what."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """The simulation has to find it ``within`` so many seeds from 0."""

    name: str
    within: int
    patches: Callable[[], list[Patch]]


@contextlib.contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Have the bug in the cores for a while."""
    patches = bug.patches()
    originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)
