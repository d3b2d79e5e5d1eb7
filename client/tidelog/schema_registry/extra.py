"""The error for an optional dependency that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def schema_registry_extra(module: str) -> Iterator[None]:
    """Name the extra to install when an import of ``module`` fails in this block."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"{module} needs {error.name}: install tidelog[schema-registry]"
        raise ModuleNotFoundError(text, name=error.name) from error
