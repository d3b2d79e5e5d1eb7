"""Nodes fetch from each other by the listener that ``inter.broker.listener.name`` names, whatever it speaks."""

import pytest

from tidelog import Producer
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster


@pytest.mark.parametrize("name", ["GRPC", "PLAINTEXT"])
def test_follower_that_was_away_catches_up_by_the_named_listener(name):
    config = {"inter.broker.listener.name": name, "min.insync.replicas": "2", "replica.lag.time.max.ms": "1000"}
    with LocalCluster(nodes=2, controllers=1, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for created in admin.create_topics([NewTopic("t", 1, 2)]).values():
            created.result(20)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
            producer.produce("t", b"before")
            assert producer.flush(20) == 0
            leader = admin.list_topics(timeout=10).topics["t"].partitions[0].leader
            follower = cluster.nodes[3 - leader]
            follower.kill()
            producer.produce("t", b"x" * 500_000)
            follower.start()
            assert producer.flush(30) == 0, "min.insync.replicas is 2: the follower has it"
