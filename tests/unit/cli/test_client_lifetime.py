"""A client that is closed, forgotten or left open ends without a hang, and says what is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import AdminClient, KafkaException, NewTopic
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

pytestmark = pytest.mark.costly
_PROGRAM = """
import sys, threading
from tidelog import Consumer, Producer, TopicPartition

server = {"bootstrap.servers": sys.argv[1]}
producer = Producer({**server, "linger.ms": 60_000})
producer.produce("t", b"v")
consumer = Consumer(server)
consumer.assign([TopicPartition("t", 0)])
if "poll" in sys.argv:
    threading.Thread(target=consumer.poll, daemon=True).start()
    threading.Thread(target=producer.poll, daemon=True).start()
if "flush" in sys.argv:
    producer.flush()
"""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        yield running


@pytest.mark.parametrize("threads", ["", "poll"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_interpreter_ends_at_once_and_says_how_many_records_were_abandoned(
    cluster: FakeCluster, is_paused: bool, threads: str
) -> None:
    if is_paused:
        cluster.pause()
    command = [sys.executable, "-c", _PROGRAM, cluster.bootstrap_servers, threads]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 0
    assert ended.stderr.splitlines() == [
        "the producer was closed with 1 unacknowledged records: call flush() or close() first"
    ]


def test_interpreter_ends_quietly_after_a_flush(cluster: FakeCluster) -> None:
    command = [sys.executable, "-c", _PROGRAM, cluster.bootstrap_servers, "flush", "poll"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("client", ["AdminClient", "Consumer", "Producer"])
def test_interpreter_ends_quietly_with_a_client_that_was_never_used(client: str, is_kept: bool) -> None:
    made = f"{client}({{'bootstrap.servers': '127.0.0.1:1'}})"
    program = f"from tidelog import {client}\n" + (f"kept = {made}" if is_kept else made)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_admin_client_fails_what_is_under_way_when_it_is_closed(cluster: FakeCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assert admin.describe_cluster().result(10).cluster_id == cluster.cluster_id
    cluster.pause()
    futures: list[Any] = [admin.create_topics([NewTopic("x", 1, 1)])["x"], admin.describe_cluster()]
    admin.close()
    for future in futures:
        with pytest.raises(KafkaException) as caught:
            future.result(10)
        assert caught.value.code is ErrorCode._DESTROY
    admin.close()
    for call in (lambda: admin.create_topics([NewTopic("x", 1, 1)]), admin.list_topics, admin.describe_cluster):
        with pytest.raises(KafkaException, match="_DESTROY: the admin client is closed"):
            call()


def test_admin_client_goes_on_to_another_node_when_one_is_silent(cluster: FakeCluster) -> None:
    with FakeCluster(cluster_id=cluster.cluster_id) as silent:
        silent.pause()
        servers = f"{silent.bootstrap_servers},{cluster.bootstrap_servers}"
        with AdminClient({"bootstrap.servers": servers}) as admin:
            started = time.monotonic()
            admin.create_topics([NewTopic("x", 1, 1)])["x"].result(30)
            assert time.monotonic() - started < 10
    assert cluster.end_offset("x") == 0


def test_new_topic_refuses_what_a_request_cannot_carry(cluster: FakeCluster) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        with pytest.raises(KafkaException, match=f"_INVALID_ARG: new topic 'x' is not valid: .*{2**40}"):
            admin.create_topics([NewTopic("x", 2**40)])
        with pytest.raises(TypeError, match="topic must be text, not int"):
            admin.create_topics([NewTopic(5)])  # type: ignore[arg-type]
