"""``tidelog verify``: compares the replicas of partitions."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from tidelog.admin import AdminClient, ConfigResource, ResourceType
from tidelog.cluster import LATEST_TIMESTAMP
from tidelog.cluster.config import ClientConfig
from tidelog.message import TopicPartition
from tidelog.v1 import log_service_pb2 as pb
from tidelog_cli.groups.reset_offsets import partitions_of
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.output.printing import command_group, counted, settle
from tidelog_cli.replicas.comparison import Batch, Difference, batches_of, compare_batches, compare_records
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import run_sync

app = command_group("Compare the replicas of partitions with each other.")

_COLUMNS = ("topic", "partition", "replicas", "from_offset", "to_offset", "batches", "result", "detail")


@app.callback()
def _verify() -> None:
    """Compare the replicas of partitions with each other."""


@app.command()
@connected
def replicas(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Topics, or partitions of them. Default: all topics.",
            autocompletion=complete_topic,
        ),
    ] = None,
    max_bytes: Annotated[
        int,
        typer.Option("--fetch-size", min=1, metavar="BYTES", help="The bytes to read from a replica at a time."),
    ] = 1_048_576,
) -> None:
    """Read each replica of partitions up to the high watermark, and compare them byte by byte.

    Partitions are read one after another, from the first offset that all replicas have to the high watermark at the
    start. Replicas of a compacted topic may be compacted to different extents: only their common records are
    compared. Exit code 1: replicas differ, or one could not be read.

    \b
    Examples:
      tidelog verify replicas
      tidelog verify replicas flights:0,1 orders --json
    """
    with session.admin() as admin:
        keys = _wanted(admin, topics, session.timeout_s)
        compacted = _compacted(admin, {key.topic for key in keys}, session.timeout_s)
    check = ReplicaCheck(session.settings, max_bytes, session.timeout_s)
    try:
        found = list(_checked(check, keys, compacted))
    finally:
        check.close()
    session.show("partitions", [_document(one) for one in found], _COLUMNS)
    bad = [one for one in found if one.result != SAME]
    if not bad:
        typer.echo(f"the replicas of {counted(len(found), 'partition')} are the same", err=True)
        return
    different = sum(one.result == DIFFERENT for one in bad)
    typer.echo(
        f"{different} of {counted(len(found), 'partition')} differ, {len(bad) - different} not compared", err=True
    )
    raise typer.Exit(1)


def _wanted(admin: AdminClient, topics: list[str] | None, timeout_s: float) -> list[TopicPartition]:
    if topics:
        return partitions_of(admin, topics, timeout_s)
    known = admin.list_topics(timeout=timeout_s).topics
    return [TopicPartition(name, index) for name, topic in sorted(known.items()) for index in sorted(topic.partitions)]


def _compacted(admin: AdminClient, topics: set[str], timeout_s: float) -> set[str]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
    found, errors = settle(admin.describe_configs(resources, request_timeout=timeout_s) if resources else {})
    for error in errors.values():
        raise error
    return {r.name for r, configs in found.items() if "compact" in str(configs["cleanup.policy"].value)}


def _checked(check: ReplicaCheck, keys: list[TopicPartition], compacted: set[str]) -> Iterator[PartitionCheck]:
    for number, key in enumerate(keys, 1):
        yield check.run(key, is_compacted=key.topic in compacted)
        if sys.stderr.isatty():
            typer.echo(f"{number} of {counted(len(keys), 'partition')}\r", err=True, nl=False)


def _document(found: PartitionCheck) -> dict[str, Any]:
    return {
        "topic": found.key.topic,
        "partition": found.key.partition,
        "replicas": found.replicas,
        "from_offset": found.from_offset,
        "to_offset": found.to_offset,
        "batches": found.batches,
        "result": found.result,
        "detail": found.detail or None,
    }


SAME, DIFFERENT, UNKNOWN = "same", "different", "not compared"

_POLL_MS = 100
_RACK = "tidelog-verify-replicas"
"""A follower answers readers that have a rack (KIP-392); no node is in this one, so no read is redirected."""


@dataclass(slots=True)
class PartitionCheck:
    """The result of comparing the replicas of a partition, the leader first, from one offset to another."""

    key: TopicPartition
    replicas: list[int] = field(default_factory=list)
    from_offset: int = -1
    to_offset: int = -1
    batches: int = 0
    result: str = UNKNOWN
    detail: str = ""


class ReplicaCheck:
    """Compares replicas, one partition at a time; blocking. The caller closes it."""

    def __init__(self, settings: Mapping[str, str], max_bytes: int, timeout_s: float) -> None:
        """Take a client's settings, the bytes per read, and the time that a replica may lag or be silent.

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        self._cluster = parse_config(ClientConfig, settings).cluster_client()
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the connections."""
        run_sync(self._cluster.close())

    def run(self, key: TopicPartition, *, is_compacted: bool) -> PartitionCheck:
        """Compare every follower with the leader; in a compacted partition, compare common records. Raises nothing."""
        found = PartitionCheck(key)
        try:
            self._compare(found, is_compacted)
        except TidelogError as error:
            found.result, found.detail = UNKNOWN, str(error)
        return found

    def _compare(self, found: PartitionCheck, is_compacted: bool) -> None:
        key, timeout_ms = found.key, self._timeout_s * 1000
        leader = run_sync(self._cluster.leader(key.topic, key.partition, timeout_ms=timeout_ms)).node_id
        known = self._cluster.metadata.partition(key.topic, key.partition)
        replicas = () if known is None else known.replicas
        found.replicas = [leader, *(node for node in replicas if node != leader)]
        ends = run_sync(
            self._cluster.list_offsets({(key.topic, key.partition): LATEST_TIMESTAMP}, timeout_ms=timeout_ms)
        )
        found.to_offset = ends[key.topic, key.partition].offset
        found.from_offset = max(self._log_start(key, node, node != leader) for node in found.replicas)
        span = (found.from_offset, found.to_offset)
        for follower in found.replicas[1:]:
            pair = self._read(key, leader, False, *span), self._read(key, follower, True, *span)
            found.batches = 0
            for step in compare_records(*pair) if is_compacted else compare_batches(*pair):
                if isinstance(step, Difference):
                    text = f"node {follower} and its leader {leader} at offset {step.offset}: {step.text}"
                    found.result, found.detail = DIFFERENT, text
                    return
                found.batches = step
        found.result = SAME

    def _log_start(self, key: TopicPartition, node: int, is_follower: bool) -> int:
        result = self._fetch(key, node, is_follower, 0, max_bytes=1)
        if result.HasField("error") and result.error.code != ErrorCode.OFFSET_OUT_OF_RANGE.code:
            raise error_for(result.error.code, f"node {node}: {result.error.message}")
        return result.log_start_offset

    def _read(self, key: TopicPartition, node: int, is_follower: bool, start: int, end: int) -> Iterator[Batch]:
        """Yield the batches of a replica between two offsets, waiting for a replica that is slightly behind.

        Raises:
            TidelogError: REQUEST_TIMED_OUT, it stays behind; any error of the node.
        """
        position = start
        deadline_s = time.monotonic() + self._timeout_s
        while position < end:
            result = self._fetch(key, node, is_follower, position, self._max_bytes)
            if result.HasField("error"):
                raise error_for(result.error.code, f"node {node}: {result.error.message}")
            for batch in batches_of(result.records, end):
                if batch.base_offset >= start:
                    yield batch
                position = batch.next_offset
                deadline_s = time.monotonic() + self._timeout_s
            if result.high_watermark >= end and not result.records:
                return  # Nothing is left up to there: compaction took it.
            if time.monotonic() > deadline_s:
                text = f"node {node} is at offset {position} and not at {end} after {self._timeout_s:g} s"
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, text)

    def _fetch(
        self, key: TopicPartition, node: int, is_follower: bool, offset: int, max_bytes: int
    ) -> pb.FetchPartitionResult:
        partition = pb.FetchPartition(index=key.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = pb.FetchRequest(
            max_wait_ms=_POLL_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            rack_id=_RACK if is_follower else "",
            topics=[pb.FetchTopic(name=key.topic, partitions=[partition])],
        )
        while True:
            response = run_sync(self._cluster.fetch(node, request, timeout_ms=self._timeout_s * 1000))
            # Over its quotas, a client gets no results, and the node delays its next fetch.
            if response.topics:
                return response.topics[0].partitions[0]
