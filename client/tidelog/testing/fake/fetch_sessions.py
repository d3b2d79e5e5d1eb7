"""Fetch sessions of the fake: each request looks at all partitions of its session, and answers with the news."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.fetch_session import FINAL_EPOCH, FULL_EPOCH, MAX_EPOCH

_SLOTS = 1_000
_Key = tuple[str, int]


@dataclass(slots=True)
class FakeSession:
    """What is asked of each partition, and the high watermark and log start that were told last."""

    epoch: int = 1
    asked: dict[_Key, tuple[bytes, pb.FetchPartition]] = field(default_factory=dict)
    told: dict[_Key, tuple[int, int] | None] = field(default_factory=dict)

    def update(self, request: pb.FetchRequest) -> None:
        """Take in what a request names and forgets."""
        for topic in request.topics:
            for item in topic.partitions:
                self.asked[topic.name, item.index] = (topic.topic_id, item)
                self.told.pop((topic.name, item.index), None)
        for forgotten in request.forgotten_topics:
            for index in forgotten.partitions:
                self.asked.pop((forgotten.name, index), None)
                self.told.pop((forgotten.name, index), None)

    def topics(self) -> list[pb.FetchTopic]:
        """Return all partitions as a full request has them."""
        topics: defaultdict[tuple[str, bytes], list[pb.FetchPartition]] = defaultdict(list)
        for (name, _), (topic_id, item) in self.asked.items():
            topics[name, topic_id].append(item)
        return [pb.FetchTopic(name=n, topic_id=i, partitions=items) for (n, i), items in topics.items()]

    def tell(self, response: pb.FetchResponse, *, only_news: bool) -> None:
        """Note what a response tells, and with ``only_news`` leave out of it what was told before."""
        for topic in response.topics:
            news = [result for result in topic.partitions if self._tell(topic.name, result) or not only_news]
            del topic.partitions[:]
            topic.partitions.extend(news)

    def _tell(self, name: str, result: pb.FetchPartitionResult) -> bool:
        key, tells = (name, result.index), (result.high_watermark, result.log_start_offset)
        is_news = bool(result.records) or result.HasField("error") or self.told.get(key) != tells
        self.told[key] = None if result.HasField("error") else tells
        return is_news


class FakeSessions:
    """The sessions by id. The owner's lock guards them."""

    def __init__(self) -> None:
        self._sessions: dict[int, FakeSession] = {}

    def begin(self, request: pb.FetchRequest) -> FakeSession:
        """Return the session that a request goes on with, or one of its own.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        asked = request.session
        if not request.HasField("session") or asked.epoch in (FULL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(asked.id, None)
            session = FakeSession()
            session.update(request)
            return session
        known = self._sessions.get(asked.id)
        if known is None:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {asked.id}")
        if known.epoch != asked.epoch:
            text = f"fetch session {asked.id} expects epoch {known.epoch}, the request has {asked.epoch}"
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
        known.epoch = 1 if asked.epoch == MAX_EPOCH else asked.epoch + 1
        known.update(request)
        return known

    def finish(self, request: pb.FetchRequest, session: FakeSession, response: pb.FetchResponse) -> pb.FetchResponse:
        """Make the response that of the session, which lives on where one was asked for."""
        is_full = not request.HasField("session") or request.session.epoch <= FULL_EPOCH
        session.tell(response, only_news=not is_full)
        if is_full:
            if request.HasField("session") and request.session.epoch == FULL_EPOCH and session.asked:
                response.session_id = self._keep(session)
        elif session.asked:
            response.session_id = request.session.id
        else:
            self._sessions.pop(request.session.id, None)
        return response

    def _keep(self, session: FakeSession) -> int:
        if len(self._sessions) >= _SLOTS:
            self._sessions.pop(next(iter(self._sessions)))
        while (session_id := random.SystemRandom().randint(1, MAX_EPOCH)) in self._sessions:
            pass
        self._sessions[session_id] = session
        return session_id
