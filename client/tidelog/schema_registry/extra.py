"""The error for an optional dependency that is not installed."""

from __future__ import annotations


def missing(module: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of importing ``module``, with the extra to install."""
    text = f"{module} needs {error.name}: install tidelog[schema-registry]"
    return ModuleNotFoundError(text, name=error.name)
