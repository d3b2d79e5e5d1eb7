"""The ids of the SDK's calls, from the client to the logs of a node and of a controller."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tidelog import AdminClient, Producer
from tidelog.admin import NewTopic
from tidelog.cluster.request_ids import RequestIds
from tidelog.testing import FakeCluster
from tidelog_foundation.logs import limit, slow_requests
from tidelog_foundation.logs.request_id import MAX_LENGTH, safe_request_id
from tidelog_testing import fake_cluster

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    slow = {"logging.slow.request.ms": "1"}
    settings = fake_cluster.Settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fake_cluster, "Settings", lambda controller, node: settings({**controller, **slow}, {**node, **slow})
        )
        patch.setattr(limit, "_PER_PERIOD", 10_000)
        # A fast machine answers within a real millisecond.
        patch.setattr(slow_requests, "_MILLISECOND_NS", 1_000)
        with FakeCluster(auto_create_topics=True) as running:
            yield running


def test_slow_call_leads_from_the_client_to_the_node_and_its_controller(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="tidelog.cluster.request_ids")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "my reports"}
    with AdminClient(settings) as admin:
        admin.create_topics([NewTopic("t", 100, 1)])["t"].result(30)
    lines = [record.getMessage() for record in caplog.records]
    [call] = [line for line in lines if re.match(r"Call \S+ of \S*CreateTopics", line)]
    request_id = call.split()[1]
    assert re.fullmatch(r"my_reports-[0-9a-f]{6}/[0-9]+", request_id)
    slow = [line for line in lines if line.startswith(f"Slow request: CreateTopics {request_id} from ")]
    assert len(slow) == 2, "one of the node, one of the controller"
    assert re.search(r"took [0-9.]+ ms: throttle [0-9.]+, queue [0-9.]+, local [0-9.]+, remote [0-9.]+$", slow[0])


def test_request_of_a_produce_stream_has_its_number(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "streamer"}
    with Producer(settings) as producer:
        for _ in range(50):
            producer.produce("streamed", b"x" * 100_000)
            assert producer.flush(30) == 0
    slow = [r.getMessage() for r in caplog.records if "Slow request: ProduceStream" in r.getMessage()]
    assert any(
        re.match(r"Slow request: ProduceStream streamer-[0-9a-f]{6}/[0-9]+\.[0-9]+ from ", line) for line in slow
    )


def test_id_is_safe_and_whole_whatever_the_client_id() -> None:
    given = RequestIds("日本 " * 200).next()
    assert safe_request_id(given) == given
    assert len(given) < MAX_LENGTH
    assert given.endswith("/1")
