"""A KafkaNode that only has an image, sufficient for requests about the cluster and its topics."""

import asyncio
from types import SimpleNamespace

from tidelog_foundation.ids import NO_BROKER
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, Request
from tidelog_node.partitions import MetadataCache
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

__all__ = ["ImageNode", "broker", "fenced", "partition", "topic_id"]


def topic_id(name):
    return name.encode().ljust(16, b"\0")[:16]


def broker(broker_id, *listeners, rack="", log_dirs=(), fenced=False):
    """Return a registration. Each listener's host is its lowercase name, and its port is the broker's id."""
    endpoints = [ListenerEndpoint("GRPC", "grpc", broker_id, "GRPC")]
    endpoints += [ListenerEndpoint(name, name.lower(), broker_id, "PLAINTEXT") for name in listeners]
    return RegisterBrokerRecord(
        broker_id,
        bytes([broker_id]) * 16,
        broker_id,
        Endpoint("grpc", broker_id),
        rack,
        log_dirs,
        fenced,
        listeners=tuple(endpoints),
    )


def fenced(broker_id):
    return BrokerRegistrationChangeRecord(broker_id, broker_id, fenced=True)


def partition(topic, index, replicas, isr=None, leader=None, epoch=0, **more):
    isr = replicas if isr is None else isr
    leader = next(iter(isr), NO_BROKER) if leader is None else leader
    return PartitionRecord(topic_id(topic), index, tuple(replicas), tuple(isr), leader, epoch, **more)


class ImageNode:
    """A node with an image.

    ``wanted`` are the topics to create on request; ``creates`` is auto.create.topics.enable.
    """

    def __init__(self, *records, creates=True):
        self.wanted = []
        self.metadata = MetadataCache()
        creator = SimpleNamespace(want=lambda names, client: self.wanted.extend(names)) if creates else None
        quotas = ClientQuotas(lambda: 0, lambda: 0)
        self.guard = None
        self.context = SimpleNamespace(cluster_id="c1", metadata=self.metadata, topic_creator=creator, quotas=quotas)
        self.add(*records)

    def add(self, *records):
        offset = self.metadata.image.offset + 1
        self.metadata.publish(self.metadata.image.apply(offset, 1, records))

    def add_topic(self, name, *partitions):
        """Add a topic whose partitions have the given replicas."""
        records = [partition(name, i, replicas) for i, replicas in enumerate(partitions)]
        self.add(TopicRecord(name, topic_id(name)), *records)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def ask(self, request, version, response_class, listener="PLAINTEXT"):
        found = self.begin(request, version, listener)
        return self.read(b"".join(found if isinstance(found, list) else asyncio.run(found)), version, response_class)

    def read(self, body, version, response_class):
        reader = Reader(memoryview(body))
        response = decode(response_class, reader, version)
        assert not reader.remaining
        return response

    def begin(self, request, version, listener="PLAINTEXT"):
        writer = Writer()
        encode(request, writer, version)
        reader = Reader(memoryview(b"".join(writer.chunks())))
        caller = Caller(listener, ClientIdentity("test", "127.0.0.1"), version)
        found = all_apis()[request.API_KEY].begin(self, Request(caller, 1, reader))
        assert not reader.remaining
        return found
