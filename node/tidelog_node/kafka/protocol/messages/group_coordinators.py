"""FindCoordinator: the nodes that coordinate groups and transactions (KIP-98, KIP-699)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import STRING, Message, Structure, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3):
    """A request for coordinators: one key up to version 3, several from version 4 on.

    ``key_type`` is 0 for a group, 1 for a transactional id and 2 for a share group.
    """

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(STRING, since=4)


class Coordinator(Structure):
    """The coordinator of one key. On error the node is -1, the host is empty and the port is -1."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=4)


class FindCoordinatorResponse(Message, answers=FindCoordinatorRequest):
    """The coordinators in the order of the request."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
