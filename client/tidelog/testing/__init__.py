"""Clusters for tests: `LocalCluster` runs real processes, `FakeCluster` is one node in memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.fake import FakeCluster
    from tidelog.testing.local import LocalCluster

__all__ = ["FakeCluster", "LocalCluster"]

_HOMES = {"FakeCluster": "tidelog.testing.fake", "LocalCluster": "tidelog.testing.local"}


def __getattr__(name: str) -> object:
    # Lazily: neither needs what the other imports.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
