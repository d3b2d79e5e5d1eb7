"""Runs the record tests on both engines: the pure one, and the compiled one where it is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

_USERS = ("arrow", "builder", "control", "reader", "scan", "validation")


@pytest.fixture(scope="module", params=["_pure", "_fast"], ids=["pure", "compiled"])
def engine(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    try:
        chosen = importlib.import_module(f"tidelog_foundation.records.{request.param}")
    except ImportError as error:
        pytest.skip(f"the compiled engine is not built (hatch_build.py): {error}")
    with pytest.MonkeyPatch.context() as patch:
        for name in _USERS:
            patch.setattr(importlib.import_module(f"tidelog_foundation.records.{name}"), "engine", chosen)
        yield chosen
