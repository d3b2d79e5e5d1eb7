"""AdminClient.create_topics when answers are lost, or its futures taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog import AdminClient, KafkaException, NewTopic
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10}) as client:
        yield client


@pytest.mark.parametrize("code", [ErrorCode._TRANSPORT, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
def test_create_topics_succeeds_when_only_the_answer_of_its_first_attempt_was_lost(
    cluster: FakeCluster, admin: AdminClient, code: ErrorCode
) -> None:
    cluster.fail_next("CreateTopics", code, 2, whole_call=True, applied=True)
    futures = admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", 1, 1)])
    assert [future.result(20) for future in futures.values()] == [None, None]
    assert cluster.calls("CreateTopics") == 3


def test_create_topics_fails_when_asked_again_for_a_topic_that_somebody_else_created(
    cluster: FakeCluster, admin: AdminClient
) -> None:
    cluster.create_topic("a", 2)
    cluster.fail_next("CreateTopics", ErrorCode._TRANSPORT, whole_call=True, applied=True)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("a", 2, 1)])["a"].result(20)
    assert cluster.calls("CreateTopics") == 2


def test_create_topics_ends_futures_that_were_taken_out_of_its_answer(admin: AdminClient) -> None:
    futures = admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])
    taken = [futures.popitem()[1], futures.popitem()[1]]
    assert [future.result(20) for future in taken] == [None, None]
