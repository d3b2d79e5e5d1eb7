"""Choice of the engine at import: the compiled one if it exists, else the pure one.

``TIDELOG_PURE_PYTHON=1`` in the environment selects the pure one. Both have the interface of
:mod:`tidelog_foundation.records._pure`, with equal results.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog_foundation.records import _pure as engine
    from tidelog_foundation.records.record import Record
else:
    try:
        if os.environ.get("TIDELOG_PURE_PYTHON"):
            raise ImportError("the pure engine is selected")
        from tidelog_foundation.records import _fast as engine
    except ImportError:
        from tidelog_foundation.records import _pure as engine
    Record = engine.Record

COMPILED: bool = engine.__name__.endswith("._fast")
"""True if the compiled engine is in use."""

__all__ = ["COMPILED", "Record", "engine"]
