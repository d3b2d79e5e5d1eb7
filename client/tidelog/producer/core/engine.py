"""Choice of the engine that batches records and distributes columns: the compiled one if it exists.

``TIDELOG_PURE_PYTHON=1`` in the environment selects Python. Both engines have the interface of
:mod:`tidelog.producer.core._pure_intake` and :mod:`tidelog.producer.core._pure_columns`, with equal results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_foundation.records import COMPILED as RECORDS_COMPILED

if TYPE_CHECKING:
    from tidelog.producer.core import _pure_columns as columns
    from tidelog.producer.core._pure_intake import BatchContents, Delivery, Intake, TopicLanes
else:
    try:
        if not RECORDS_COMPILED:
            raise ImportError("the pure engine is selected")
        from tidelog.producer.core import _fast_columns as columns
        from tidelog.producer.core._fast_intake import BatchContents, Delivery, Intake, TopicLanes
    except ImportError:
        from tidelog.producer.core import _pure_columns as columns
        from tidelog.producer.core._pure_intake import BatchContents, Delivery, Intake, TopicLanes

COMPILED: bool = Intake.__module__.endswith("._fast_intake")
"""True if the compiled engine is in use."""

__all__ = ["COMPILED", "BatchContents", "Delivery", "Intake", "TopicLanes", "columns"]
