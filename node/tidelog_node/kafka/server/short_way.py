"""Choice of the short way of the listeners' connections: the compiled one if it exists, else none.

``TIDELOG_PURE_PYTHON=1`` in the environment selects none. Every request then takes the general way, with the same outcome.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog_node.kafka.apis.produce import ProduceApi
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Api
from tidelog_node.kafka.server.connection import ShortWay

_SHORT_WAY: Callable[..., ShortWay] | None = None
if not TYPE_CHECKING and not os.environ.get("TIDELOG_PURE_PYTHON"):
    with contextlib.suppress(ImportError):
        from tidelog_node.kafka.server._fast_single import SingleRequests as _SHORT_WAY


def short_way_of(apis: Mapping[int, Api]) -> Callable[..., ShortWay] | None:
    """Return the constructor of the short way of a connection that serves these APIs, None without one."""
    if not isinstance(apis.get(ApiKey.PRODUCE), ProduceApi):
        return None
    return _SHORT_WAY
