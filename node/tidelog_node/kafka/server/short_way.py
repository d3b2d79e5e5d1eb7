"""Choice of the short way of the listeners' connections: the compiled one if it exists, else none.

``TIDELOG_PURE_PYTHON=1`` in the environment selects none. All requests then take the general way, whose outcome is the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog_foundation.compiled import compiled
from tidelog_node.kafka.apis.produce import ProduceApi
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Api
from tidelog_node.kafka.server.connection import ShortWay


def short_way_of(apis: Mapping[int, Api]) -> Callable[..., ShortWay] | None:
    """Return the constructor of the short way of a connection that serves these APIs, None without one."""
    return _SHORT_WAY if isinstance(apis.get(ApiKey.PRODUCE), ProduceApi) else None


_SHORT_WAY: Final[Callable[..., ShortWay] | None] = compiled("tidelog_node.kafka.server._fast_single", "SingleRequests")
