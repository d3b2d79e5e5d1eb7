"""An in-memory coordinator of all groups for a single-process cluster: the same shard with instant commits.

``tidelog.testing.FakeCluster`` loads it through the entry point ``tidelog.testing``, so that the group state machine
exists once. Its interface consists of requests, responses and plain values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.events import (
    AllOffsets,
    ClientIdentity,
    Event,
    GroupRequest,
    GroupResponse,
    RecordsCommitted,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    TimePassed,
    TimingsChanged,
    TopicInfo,
    TopicsChanged,
    WriteRecords,
)
from tidelog_node.groups.memory_store import MemoryGroupStore
from tidelog_node.groups.offsets.requests import fill_in_steps
from tidelog_node.groups.settings import GroupSettings, OwnTimings, own_timings
from tidelog_node.groups.shard import GroupShard


class EmbeddedGroups:
    """The groups of one process.

    Each method returns the answers that it causes, by call id. The caller serializes calls.
    """

    def __init__(
        self,
        new_member_id: Callable[[str], str],
        now_ms: int,
        *,
        store: MemoryGroupStore | None = None,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 5_000,
    ) -> None:
        """Take over the groups of a store. The timeouts apply to members of KIP-848's protocol."""
        self._new_member_id = new_member_id
        self._store = store or MemoryGroupStore()
        self._settings = GroupSettings(
            group_min_session_timeout_ms=1,
            group_initial_rebalance_delay_ms=0,
            consumer_session_timeout_ms=session_timeout_ms,
            consumer_min_session_timeout_ms=1,
            consumer_heartbeat_interval_ms=heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=1,
        )
        self._shard = GroupShard(self._settings, self._store, new_member_id, now_ms)
        self._topics: dict[str, TopicInfo] = {}
        self._timings: dict[str, OwnTimings] = {}

    @property
    def next_deadline_ms(self) -> int:
        """The time of the next :meth:`pass_time`."""
        return self._shard.next_deadline_ms

    def restarted(self, now_ms: int) -> EmbeddedGroups:
        """Return the coordinator of a restarted process: it has the committed records and no waiting calls."""
        return EmbeddedGroups(
            self._new_member_id,
            now_ms,
            store=self._store,
            session_timeout_ms=self._settings.consumer_session_timeout_ms,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
        )

    def call(
        self, call_id: int, request: GroupRequest, client_id: str, host: str, now_ms: int
    ) -> dict[int, GroupResponse]:
        """Process a request. A later call, or the passage of time, may produce its answer."""
        return self._step(RequestReceived(call_id, request, ClientIdentity(client_id, host)), now_ms)

    def abandon(self, call_id: int, now_ms: int) -> dict[int, GroupResponse]:
        """Forget a call whose caller has gone."""
        return self._step(RequestAbandoned(call_id), now_ms)

    def change_topics(self, topics: Mapping[str, tuple[bytes, int]], now_ms: int) -> dict[int, GroupResponse]:
        """Replace the known topics: id and number of partitions by name."""
        known = {name: TopicInfo(topic_id, name, count) for name, (topic_id, count) in topics.items()}
        if known == self._topics:
            return {}
        self._topics = known
        return self._step(TopicsChanged(known), now_ms)

    def change_configs(self, configs: Mapping[str, Mapping[str, str]], now_ms: int) -> dict[int, GroupResponse]:
        """Replace the settings of single groups, by group id."""
        timings = {group_id: own_timings(settings) for group_id, settings in configs.items()}
        if timings == self._timings:
            return {}
        self._timings = timings
        return self._step(TimingsChanged(timings), now_ms)

    def pass_time(self, now_ms: int) -> dict[int, GroupResponse]:
        """Process expired deadlines."""
        return self._step(TimePassed(), now_ms)

    def refuse(self, request: GroupRequest, error: TidelogError) -> GroupResponse:
        """Return the answer that refuses a whole request."""
        return _as_message(refuse(request, error))

    def _step(self, event: Event, now_ms: int) -> dict[int, GroupResponse]:
        answers: dict[int, GroupResponse] = {}
        events: deque[Event] = deque([event])
        while events:
            for command in self._shard.step(events.popleft(), now_ms):
                if isinstance(command, Respond):
                    answers[command.call_id] = _as_message(command.response)
                else:
                    events += self._commit(command)
        return answers

    def _commit(self, write: WriteRecords) -> list[Event]:
        self._store.apply(write.records)
        return [RecordsWritten(write.write_id), RecordsCommitted(write.write_id)]


def _as_message(response: GroupResponse) -> GroupResponse:
    """Return a response as the client's message. Building it at once is acceptable in a single process."""
    if not isinstance(response, AllOffsets):
        return response
    result = pb.OffsetFetchGroupResult()
    for _ in fill_in_steps(result, response):
        pass
    return result
