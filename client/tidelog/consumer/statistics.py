"""The statistics of a consumer's ``stats_cb``: the fields of librdkafka's STATISTICS.md that apply to this consumer.

:class:`Tally` counts on the network thread, which also creates the text every ``statistics.interval.ms``.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

from tidelog.cluster import ClusterMetadata
from tidelog.cluster.traffic import NodeTraffic, client_statistics
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.commits import Commits
from tidelog.consumer.core.events import Fetched
from tidelog.consumer.core.partition import PartitionState
from tidelog.consumer.core.positions import Positions
from tidelog_foundation.records import summarize_batches

NO_OFFSET = -1001
"""librdkafka's OFFSET_INVALID."""


class Tally:
    """Counters of a consumer's fetches. They live on the network thread."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.nodes: defaultdict[int, NodeTraffic] = defaultdict(NodeTraffic)
        self.received: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def begin(self, node_id: int) -> float:
        """Record the start of a fetch, and return its time for :meth:`end`."""
        self.nodes[node_id].begin()
        return time.monotonic()

    def end(self, node_id: int, began_s: float, fetched: Fetched | None) -> None:
        """Record a fetch's answer; None if it failed or was interrupted."""
        size = 0
        for result in () if fetched is None else fetched.results:
            if result.records:
                counts = self.received[result.spec.topic, result.spec.partition]
                counts[0] += summarize_batches(result.records).record_count
                counts[1] += len(result.records)
                size += len(result.records)
        self.nodes[node_id].end(began_s, failed=fetched is None, size=size)


def statistics_text(
    config: ConsumerConfig,
    tally: Tally,
    positions: Positions,
    commits: Commits,
    metadata: ClusterMetadata,
    waiting: int,
) -> str:
    """Return the statistics as JSON; the caller holds the lock of positions and commits.

    ``waiting`` counts the calls and messages that wait for the application.
    """
    topics: dict[str, Any] = {}
    for topic, index in positions.assignment:
        state = positions.state(topic, index)
        assert state is not None
        entry = topics.setdefault(topic, {"topic": topic, "partitions": {}})
        entry["partitions"][str(index)] = _partition(state, tally, commits, metadata)
    fields: dict[str, Any] = {
        **client_statistics("consumer", config.client_id, tally.started, tally.nodes, metadata),
        "replyq": waiting,
        "msg_cnt": 0,
        "msg_size": positions.queued_bytes,
        "rxmsgs": sum(count for count, _ in tally.received.values()),
        "rxmsg_bytes": sum(size for _, size in tally.received.values()),
        "topics": topics,
    }
    if config.group_id is not None:
        is_member = bool(commits.member.member_id)
        fields["cgrp"] = {
            "state": "up" if is_member else "init",
            "join_state": "steady" if is_member else "init",
            "assignment_size": len(positions.assignment),
        }
    return json.dumps(fields)


def _partition(state: PartitionState, tally: Tally, commits: Commits, metadata: ClusterMetadata) -> dict[str, Any]:
    key = (state.topic, state.partition)
    leader = metadata.leader(*key)
    stored, committed = commits.offsets_of(key)
    count, size = tally.received[key]
    return {
        "partition": state.partition,
        "broker": state.asked_node,
        "leader": -1 if leader is None else int(leader.node_id),
        "desired": True,
        "unknown": leader is None,
        "fetch_state": _fetch_state(state),
        "fetchq_cnt": state.waiting_offsets,
        "next_offset": _or_none(state.fetch_offset),
        "app_offset": _or_none(state.position if state.consumed else None),
        "stored_offset": _or_none(stored),
        "committed_offset": _or_none(committed),
        "lo_offset": _or_none(state.log_start_offset if state.high_watermark >= 0 else None),
        "hi_offset": _or_none(state.high_watermark if state.high_watermark >= 0 else None),
        "ls_offset": _or_none(state.end_offset if state.high_watermark >= 0 else None),
        "consumer_lag": _lag(state, committed if committed is not None else state.position),
        "consumer_lag_stored": _lag(state, stored),
        "leader_epoch": -1 if state.leader is None else state.leader[1],
        "rxmsgs": count,
        "rxbytes": size,
    }


def _fetch_state(state: PartitionState) -> str:
    if state.stopped:
        return "stopped"
    if state.fetch_offset is None:
        return "offset-query"
    return "active"


def _or_none(offset: int | None) -> int:
    return NO_OFFSET if offset is None else offset


def _lag(state: PartitionState, offset: int | None) -> int:
    return -1 if offset is None or state.end_offset < 0 else max(state.end_offset - offset, 0)
