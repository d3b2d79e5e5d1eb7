"""Chooses how records join batches and columns are spread over partitions: compiled where that was built.

``TIDELOG_PURE_PYTHON=1`` in the environment asks for Python. Both have the interface of
:mod:`tidelog.producer.core._pure_intake` and :mod:`tidelog.producer.core._pure_columns`, and give equal results.
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
            raise ImportError("the pure engine is asked for")
        from tidelog.producer.core import _fast_columns as columns
        from tidelog.producer.core._fast_intake import BatchContents, Delivery, Intake, TopicLanes
    except ImportError:
        from tidelog.producer.core import _pure_columns as columns
        from tidelog.producer.core._pure_intake import BatchContents, Delivery, Intake, TopicLanes

COMPILED: bool = Intake.__module__.endswith("._fast_intake")
"""Whether the compiled one is in use."""

__all__ = ["COMPILED", "BatchContents", "Delivery", "Intake", "TopicLanes", "columns"]
