"""Choice of ``produce()``: the compiled one if it exists, else Python; see ``tidelog.producer.core.engine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.producer._pure_calls import HeadersArgument
from tidelog.producer.core.engine import COMPILED

if TYPE_CHECKING:
    from tidelog.producer._pure_calls import ProduceCalls
else:
    try:
        if not COMPILED:
            raise ImportError("the pure engine is selected")
        from tidelog.producer._fast_calls import ProduceCalls
    except ImportError:
        from tidelog.producer._pure_calls import ProduceCalls

__all__ = ["HeadersArgument", "ProduceCalls"]
