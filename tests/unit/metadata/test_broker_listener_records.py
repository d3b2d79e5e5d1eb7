"""The listeners of a broker in records, images and descriptions, and brokers that named none."""

from tidelog.v1 import common_pb2
from tidelog.v1 import metadata_record_pb2 as pb
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_quorum.metadata.codec import from_message, to_message
from tidelog_quorum.metadata.description import cluster_brokers
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration

GRPC, KAFKA = ListenerEndpoint("GRPC", "a", 1, "GRPC"), ListenerEndpoint("INTERNAL", "::1", 2, "PLAINTEXT")
RECORD = RegisterBrokerRecord(7, bytes(16), 1, Endpoint("a", 1), listeners=(GRPC, KAFKA))


def test_record_with_listeners_is_read_back():
    assert from_message(to_message(RECORD)) == RECORD


def test_record_from_before_there_were_listeners_has_the_one_that_speaks_grpc():
    message = pb.MetadataRecord(
        register_broker=pb.RegisterBrokerRecord(
            broker_id=7, incarnation_id=bytes(16), endpoint=common_pb2.Endpoint(host="a", port=1)
        )
    )
    record = from_message(message)
    broker = BrokerRegistration.from_record(record)
    assert (broker.listeners, broker.endpoint) == ((), Endpoint("a", 1))
    assert broker.endpoint_on("GRPC") == Endpoint("a", 1)
    assert broker.endpoint_on("PLAINTEXT") is None
    assert broker.to_record() == record


def test_broker_is_reached_by_each_of_its_listeners():
    broker = BrokerRegistration.from_record(RECORD)
    assert broker.to_record() == RECORD
    assert [broker.endpoint_on(name) for name in ("GRPC", "INTERNAL", "internal", "OTHER")] == [
        Endpoint("a", 1),
        Endpoint("::1", 2),
        None,
        None,
    ]
    assert (str(broker.endpoint_on("INTERNAL")), str(KAFKA)) == ("[::1]:2", "INTERNAL://[::1]:2")


def test_listeners_stay_when_a_broker_is_fenced_and_in_snapshots():
    image = MetadataImage().apply(1, 1, [RECORD])
    image = image.apply(2, 1, [BrokerRegistrationChangeRecord(7, 1, fenced=False)])
    assert image.brokers[7].listeners == (GRPC, KAFKA)
    again = MetadataImage().apply(2, 1, image.iterate_records())
    assert again == image


def test_description_of_the_cluster_has_all_listeners():
    [shown] = cluster_brokers(MetadataImage().apply(1, 1, [RECORD]))
    assert [(x.name, x.host, x.port, x.security_protocol) for x in shown.listeners] == [
        ("GRPC", "a", 1, "GRPC"),
        ("INTERNAL", "::1", 2, "PLAINTEXT"),
    ]
