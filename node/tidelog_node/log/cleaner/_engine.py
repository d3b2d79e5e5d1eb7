"""Selects the cleaner's engine once, at import: the compiled one if it was built, else the pure one.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the pure engine. Both have the interface of
:mod:`tidelog_node.log.cleaner._pure` and give equal results.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog_node.log.cleaner import _pure as engine
else:
    try:
        if os.environ.get("TIDELOG_PURE_PYTHON"):
            raise ImportError("the pure engine is asked for")
        from tidelog_node.log.cleaner import _fast as engine
    except ImportError:
        from tidelog_node.log.cleaner import _pure as engine

COMPILED: bool = engine.__name__.endswith("._fast")
"""True if the compiled engine is in use."""

__all__ = ["COMPILED", "engine"]
