"""A consumer's fetch of one partition outside of sessions that finds its records at once, in few steps.

Many clients fetch this way: those that open no session, from a partition with unread records. The response is that of
the way of all others (:mod:`tidelog_node.handlers.fetch`), which answers all other requests. An authorizer decides
there too, and writes its log: this way serves only callers whose permission to read the topic is remembered.
"""

from __future__ import annotations

from tidelog_foundation.authorization import READ_TOPIC
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.response_budget import wait_for_nothing
from tidelog_node.partitions import Partition, ReadRequest, ReadResult
from tidelog_node.replication.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSpec


def read_at_once(context: NodeContext, request: FetchRequest) -> FetchResponse | None:
    """Return the response, or None if the request must take the way of all others. Nothing has changed then."""
    session = request.session
    if request.replica is not None or len(request.wanted) != 1:
        return None
    if session is not None and (session.epoch != FINAL_EPOCH or session.id != NO_SESSION or request.forgotten):
        return None
    if request.rack_id and context.replica_selector.is_rack_aware:
        return None
    [((topic, index), spec)] = request.wanted.items()
    name = topic if isinstance(topic, str) else context.metadata.topic_name(topic)
    if name is None or (request.access is not None and not request.access.remembers(READ_TOPIC, name)):
        return None
    partition = context.partitions.get(name, index)
    if partition is None or (spec.topic_id and spec.topic_id != partition.topic_id):
        return None
    read = _read(context, request, spec, partition)
    if read is None:
        return None
    size = len(read.records)
    if not size or (
        request.max_wait_ms > 0 and size < min(request.min_bytes, request.max_bytes, context.fetch_max_bytes)
    ):
        return None
    partition.traffic.bytes_out += size
    partition.traffic.reads += 1
    aborted = None if read.aborted is None else [(each.producer_id, each.first_offset) for each in read.aborted]
    watermarks = (read.high_watermark, read.last_stable_offset, read.log_start_offset)
    return FetchResponse({topic: [FetchResult(index, None, *watermarks, read.records, aborted)]})


def _read(context: NodeContext, request: FetchRequest, spec: FetchSpec, partition: Partition) -> ReadResult | None:
    room = context.response_budget.room_for(wait_for_nothing, is_follower=False)
    if room <= 0:
        return None
    most = min(spec.max_bytes, max(0, min(request.max_bytes, context.fetch_max_bytes, room)))
    is_read_committed, last_epoch = request.is_read_committed, spec.last_fetched_epoch
    asked = ReadRequest(spec.fetch_offset, most, spec.leader_epoch, is_read_committed, last_epoch)
    try:
        if request.may_read_followers and partition.state.leader is None:
            return partition.read_as_replica(asked)
        return partition.read_as_leader(asked, None)
    except Exception:  # noqa: BLE001  # the way of all others meets it again, and answers or logs it
        return None
