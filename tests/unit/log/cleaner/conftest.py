"""Runs the cleaner's tests on both engines: the pure one, and the compiled one where it is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

_USERS = ("batch_filter", "job", "log_cleaner")


@pytest.fixture(scope="module", params=["_pure", "_fast"], ids=["pure", "compiled"])
def engine(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    try:
        chosen = importlib.import_module(f"tidelog_node.log.cleaner.{request.param}")
    except ImportError as error:
        pytest.skip(f"not built (python hatch_build.py node/tidelog_node/log/cleaner/_fast.pyx): {error}")
    with pytest.MonkeyPatch.context() as patch:
        for name in _USERS:
            patch.setattr(importlib.import_module(f"tidelog_node.log.cleaner.{name}"), "engine", chosen)
        yield chosen
