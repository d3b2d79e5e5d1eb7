"""A consumer's fetch session with a node: requests from specs, and the effect of answers on the session."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from tidelog.cluster.answers import group_by_topic
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.events import FetchSpec
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import TidelogError, error_for
from tidelog_foundation.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSessionHandler

_Key: TypeAlias = tuple[str, int]
_ISOLATION = (pb.ISOLATION_LEVEL_READ_UNCOMMITTED, pb.ISOLATION_LEVEL_READ_COMMITTED)


class NodeSession:
    """The session with one node. One of the other methods must follow each :meth:`request`."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._handler: FetchSessionHandler[_Key, FetchSpec] = FetchSessionHandler()
        self._is_full = True
        self._errors = 0

    def request(self, specs: Sequence[FetchSpec]) -> pb.FetchRequest:
        """Return the request that fetches exactly these partitions."""
        wanted = {(spec.topic, spec.partition): spec for spec in specs}
        self._handler.keep_only(wanted.keys())
        for key, spec in wanted.items():
            self._handler.want(key, spec)
        asked = self._handler.build()
        self._is_full = asked.is_full
        topics = group_by_topic(
            (
                spec.topic,
                pb.FetchPartition(
                    index=spec.partition,
                    fetch_offset=spec.offset,
                    partition_max_bytes=self._config.max_partition_fetch_bytes,
                    current_leader_epoch=spec.leader_epoch if spec.leader_epoch >= 0 else None,
                ),
            )
            for spec in asked.wanted.values()
        )
        return pb.FetchRequest(
            max_wait_ms=self._config.fetch_wait_max_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            isolation_level=_ISOLATION[self._config.is_read_committed],
            rack_id=self._config.client_rack,
            topics=[pb.FetchTopic(name=name, partitions=items) for name, items in topics.items()],
            session=pb.FetchSession(id=asked.session_id, epoch=asked.epoch),
            forgotten_topics=[pb.ForgottenTopic(name=name, partitions=[index]) for name, index in asked.forgotten],
        )

    def take(self, session_id: int, answered: Collection[_Key]) -> bool:
        """Apply an answer; return True if partitions missing from it are unchanged."""
        self._errors = 0
        return self._handler.take_answer(session_id, answered) and not self._is_full

    def take_throttled(self, session_id: int) -> None:
        """Apply an answer without results to a client over its quotas; it creates no session."""
        if self._is_full:
            self._handler.take_failure()
        else:
            self.take(session_id, ())

    def fail(self) -> None:
        """Handle a lost request or answer."""
        self._handler.take_failure()

    def refused(self, error: Error) -> TidelogError | None:
        """Apply the node's session error; return None if the next request can go at once."""
        refusal = error_for(error.code, error.message)
        self._handler.take_error(refusal.code)
        self._errors += 1
        return None if self._errors == 1 else refusal

    def ending(self) -> pb.FetchRequest | None:
        """Return the request that closes the session, or None if there is none."""
        session_id = self._handler.session_id
        if session_id == NO_SESSION:
            return None
        return pb.FetchRequest(session=pb.FetchSession(id=session_id, epoch=FINAL_EPOCH))
