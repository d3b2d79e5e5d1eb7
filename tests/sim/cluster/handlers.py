"""A simulated node's context for the product's handlers, which answer all that readers ask here."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from random_numbers import mix
from sim.cluster.sleeping import SimulatedSession, drive
from sim.cluster.standing import CLUSTER
from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_node.event_loop import Pending
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.fetch import begin_fetch
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.handlers.offsets import list_offsets, offset_for_leader_epoch
from tidelog_node.partitions import ReplicationThrottles
from tidelog_node.replication import ReplicaSelector
from tidelog_node.replication.fetch_session import FetchSession
from tidelog_node.replication.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from tidelog_node.server.fetch_messages import request_from_proto, response_to_proto

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

    from tidelog_quorum.metadata.image import MetadataImage

_AT_ONCE = {"list_offsets": list_offsets, "offset_for_leader_epoch": offset_for_leader_epoch}


class Handlers:
    """Of one life of a node."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._drawn = 0
        self.throttles = ReplicationThrottles(node)
        selector = RACK_AWARE_SELECTOR if node.topology.from_replicas else LEADER_SELECTOR
        unused = cast(Any, None)
        self.context = NodeContext(
            broker_id=node.identity,
            cluster_id=CLUSTER,
            rack=node.rack,
            partitions=cast(Any, _Partitions(node)),
            metadata=cast(Any, _Metadata(node)),
            controller=unused,
            voters={},
            clock=node,
            fetch_max_bytes=1 << 20,
            throttles=self.throttles,
            settings=unused,
            producer_ids=unused,
            replica_selector=ReplicaSelector(selector),
            fetch_sessions=FetchSessions(node.topology.fetch_sessions, self._draw_id, self._open_session),
        )

    def handle(self, name: str, request: Any, answer: OnAnswer) -> None:
        """Answer a request of a reader, now or later."""
        if name != "fetch":
            drive(_AT_ONCE[name](self.context, request), answer)
            return
        try:
            begun = begin_fetch(self.context, request_from_proto(request), response_to_proto)
        except TidelogError as error:
            answer(error)
            return
        if isinstance(begun, Pending):
            begun.then(lambda done: answer(done.error if isinstance(done.error, TidelogError) else done.result()))
        elif inspect.iscoroutine(begun):
            drive(begun, answer)
        else:
            answer(begun)

    def _draw_id(self) -> int:
        self._drawn += 1
        return 1 + mix(self._node.number, self._node.life, self._drawn) % (1 << 30)

    def _open_session(self, state: FetchSession) -> SimulatedSession:
        return SimulatedSession(self._node, state)


class _Partitions:
    """The part of the registry that handlers use."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node

    def get(self, topic: str, index: int) -> SimulatedPartition | None:
        return self._node.partitions.get((topic, index))

    def check_online(self, topic: str, index: int) -> None:
        self._node.replicas.hosted.check_online((topic, index))


class _Metadata:
    """The part of the metadata cache that handlers use."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node

    @property
    def image(self) -> MetadataImage:
        return self._node.replicas.applied

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.image.topic_names.get(TopicId(topic_id))
