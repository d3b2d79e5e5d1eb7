"""Choice of a compiled function or class at import."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def compiled(module: str, name: str, otherwise: Any = None) -> Any:
    """Return a name of a compiled module, or ``otherwise`` if the module is not there.

    ``TIDELOG_PURE_PYTHON=1`` in the environment selects ``otherwise``.
    """
    if os.environ.get("TIDELOG_PURE_PYTHON"):
        return otherwise
    try:
        found = import_module(module)
    except ImportError:
        return otherwise
    return getattr(found, name)
