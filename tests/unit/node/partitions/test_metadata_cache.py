"""The address by which a node reaches another one: that of its own inter-broker listener."""

import logging

import pytest

from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node.partitions import MetadataCache
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import RegisterBrokerRecord


def broker(epoch, *kafka):
    listeners = (ListenerEndpoint("TOOLS", "a", 1, "GRPC"), *kafka)
    return RegisterBrokerRecord(7, bytes(16), epoch, Endpoint("a", 1), listeners=listeners)


INTERNAL = ListenerEndpoint("INTERNAL", "::1", 2, "PLAINTEXT")


@pytest.mark.parametrize(("name", "expected"), [("INTERNAL", "[::1]:2"), ("TOOLS", "a:1")])
def test_node_is_reached_by_the_inter_broker_listener(name, expected):
    cache = MetadataCache(name)
    assert cache.broker_address(7) is None
    cache.publish(MetadataImage().apply(1, 1, [broker(1, INTERNAL)]))
    assert cache.broker_address(7) == expected


def test_node_without_the_inter_broker_listener_has_no_address_which_is_said_once_for_each_of_its_starts(caplog):
    cache = MetadataCache("INTERNAL")
    image = MetadataImage().apply(1, 1, [broker(1)])
    cache.publish(image)
    with caplog.at_level(logging.ERROR):
        assert [cache.broker_address(7) for _ in range(3)] == [None] * 3
    assert [r.getMessage() for r in caplog.records] == [
        "Node 7 has no listener INTERNAL (this node's inter.broker.listener.name), only TOOLS://a:1"
    ]
    cache.publish(image.apply(2, 1, [broker(2)]))
    with caplog.at_level(logging.ERROR):
        assert cache.broker_address(7) is None
    assert len(caplog.records) == 2


def test_node_of_a_version_without_listeners_is_reached_by_grpc_alone():
    image = MetadataImage().apply(1, 1, [RegisterBrokerRecord(7, bytes(16), 1, Endpoint("a", 1))])
    for name, expected in (("GRPC", "a:1"), ("PLAINTEXT", None)):
        cache = MetadataCache(name)
        cache.publish(image)
        assert cache.broker_address(7) == expected
