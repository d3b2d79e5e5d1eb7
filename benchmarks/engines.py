"""The choice of the record engine: the compiled one, or its twin in Python."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from tidelog_foundation.records import _pure

_USERS = ("arrow", "builder", "control", "reader", "scan", "validation")


@contextlib.contextmanager
def pure_engine() -> Iterator[None]:
    """Use the engine in Python, and the one before afterwards."""
    modules = [importlib.import_module(f"tidelog_foundation.records.{name}") for name in _USERS]
    chosen = [module.engine for module in modules]
    try:
        for module in modules:
            module.engine = _pure  # type: ignore[attr-defined]
        yield
    finally:
        for module, engine in zip(modules, chosen, strict=True):
            module.engine = engine  # type: ignore[attr-defined]
