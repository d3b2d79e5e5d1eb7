"""The journal's topic while nodes learn of it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from shared_spark_clients import closing_shared_clients

from tidelog import AdminClient
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_spark.clients import cluster_client
from tidelog_spark.sink import journal_topic
from tidelog_spark.sink.journal import SinkState
from tidelog_spark.sink.journal_topic import JOURNAL_TOPIC, JournalTopic
from tidelog_spark.sink.options import sink_plan


class LateClient:
    """A client whose next questions for offsets meet a node that does not know the topic yet."""

    def __init__(self, client: Any, failures: int) -> None:
        self._client, self.failures = client, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list_offsets(self, *arguments: Any, **named: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{JOURNAL_TOPIC}"')
        return await self._client.list_offsets(*arguments, **named)


@pytest.mark.parametrize("is_new", [True, False])
def test_journal_waits_for_a_node_that_learns_of_its_topic_late(is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster, closing_shared_clients():
        journal = JournalTopic(sink_plan({"bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}), "sink")
        journal.read()
        client = LateClient(cluster_client(journal._source.client), 2)
        monkeypatch.setattr(journal_topic, "cluster_client", lambda _: client)
        if not is_new:
            # All nodes know it by now, so it was deleted.
            client.failures = 1
            late = SimpleNamespace(monotonic=lambda: journal._known_by_s)
            monkeypatch.setattr(journal_topic, "time", late)
            with pytest.raises(TidelogError, match=JOURNAL_TOPIC):
                journal.read()
            client.failures = 0
            with AdminClient(cluster.client_settings()) as admin:
                admin.delete_topics([JOURNAL_TOPIC])[JOURNAL_TOPIC].result()
            monkeypatch.setattr(journal_topic, "time", time)
            assert journal.read() == SinkState(), "it is created anew"
            return
        journal.read()
        assert client.failures == 0
