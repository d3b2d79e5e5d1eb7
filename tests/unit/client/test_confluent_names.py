"""What confluent-kafka names we name too, with the arguments in its order; what we leave out says why."""

from __future__ import annotations

import enum
import inspect
import re
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.serialization
import pytest

import tidelog
import tidelog.admin
import tidelog.serialization

TRANSACTIONS = {
    *("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"),
    "send_offsets_to_transaction",
}
SECURITY = {"set_sasl_credentials"}
SHARE_GROUPS = {"delivery_count"}
SCHEMA_REGISTRY = {"set_cluster_id_resolver", "close"}
LEFT_OUT: dict[str, set[str]] = {
    "Producer": TRANSACTIONS | SECURITY,
    "SerializingProducer": TRANSACTIONS | SECURITY,
    "Consumer": SECURITY,
    "DeserializingConsumer": SECURITY,
    "Message": SHARE_GROUPS,
    "Serializer": SCHEMA_REGISTRY,
    "Deserializer": SCHEMA_REGISTRY,
    **{f"{kind}{way}": SCHEMA_REGISTRY for kind in ("String", "Integer", "Double") for way in ("Serializer",)},
    **{f"{kind}Deserializer": SCHEMA_REGISTRY for kind in ("String", "Integer", "Double")},
    # The rest of these are tested beside the admin client; the errors are those of features that there are not.
    "KafkaError": {"txn_requires_abort"},
}
OTHER_ARGUMENTS = {
    # Arrow columns and lists in place of one dict per record.
    *(("Producer", "produce_batch"), ("SerializingProducer", "produce_batch")),
    # An option that says what it does, and not `kwargs` under another name.
    *(("TopicDescription", "__init__"), ("DescribeClusterResult", "__init__"), ("OffsetSpec", "__init__")),
    ("ConsumerGroupDescription", "__init__"),
}
PAIRS = [
    *(
        (name, getattr(confluent_kafka, name), getattr(tidelog, name))
        for name in (
            *("Producer", "Consumer", "SerializingProducer", "DeserializingConsumer", "Message", "TopicPartition"),
            *("KafkaError", "KafkaException"),
        )
    ),
    *(
        (name, getattr(theirs, name), getattr(ours, name))
        for theirs, ours in (
            (confluent_kafka.serialization, tidelog.serialization),
            (confluent_kafka.admin, tidelog.admin),
        )
        for name in sorted(set(dir(theirs)) & set(dir(ours)))
        if inspect.isclass(getattr(theirs, name)) and name != "AdminClient"
    ),
]
EACH = pytest.mark.parametrize(("name", "theirs", "ours"), PAIRS, ids=[name for name, _, _ in PAIRS])


@EACH
def test_methods_have_the_names_of_confluent_kafka(name: str, theirs: type, ours: type) -> None:
    wanted = {n for n in dir(theirs) if not n.startswith("_") and not n.isupper()}
    assert wanted - set(dir(ours)) == LEFT_OUT.get(name, set())


@EACH
def test_arguments_are_in_the_order_of_confluent_kafka(name: str, theirs: type, ours: type) -> None:
    if issubclass(theirs, enum.Enum):
        return
    named = {n for n in dir(theirs) if not n.startswith("_")} & set(dir(ours)) - set(dir(Exception))
    for method in sorted(named | {"__init__"}):
        if (name, method) in OTHER_ARGUMENTS or not callable(getattr(theirs, method)):
            continue
        wanted = _arguments(theirs, method)
        given = [p for p in inspect.signature(getattr(ours, method)).parameters if p != "self"]
        if wanted is not None:
            assert given[: len(wanted)] == wanted, method


def _arguments(owner: type, method: str) -> list[str] | None:
    """Of a signature, or where that is in C of the text that describes it; None: nothing says it."""
    function: Any = owner if method == "__init__" else getattr(owner, method)
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        described = re.search(rf"py:function:: *{function.__name__}\(([^)]*)\)", function.__doc__ or "")
        if described is None:
            return None
        names = [each.partition("=")[0].strip(" []") for each in described[1].split(",")]
    # One dictionary of settings, or what is spelled out on our side.
    return [n for n in names if n and n not in ("self", "conf", "kwargs", "args", "config")]


def test_names_of_the_package_are_those_of_confluent_kafka() -> None:
    left_out = {
        # Share groups, which Kafka has had since 4.0 only.
        *("AcknowledgeType", "DeserializingShareConsumer", "ShareConsumer", "Messages", "deserializing_share_consumer"),
        *("ConcurrentModificationException", "IllegalStateException"),
        # librdkafka's own, and modules.
        *("ThrottleEvent", "Uuid", "libversion", "version", "murmur2", "fnv1a", "consistent", "cimpl", "os"),
        *("error", "deserializing_consumer", "serializing_producer"),
    }
    theirs = {name for name in dir(confluent_kafka) if not name.startswith("_")}
    assert theirs - set(dir(tidelog)) - set(tidelog.__all__) == left_out


@pytest.mark.parametrize("values", [("t",), ("t", 1), ("t", 1, 5), ("t", 1, 5, "m"), ("t", 1, 5, "m", 7)])
def test_partitions_look_and_compare_as_confluent_kafkas(values: tuple[Any, ...]) -> None:
    ours, theirs = tidelog.TopicPartition(*values), confluent_kafka.TopicPartition(*values)
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    for name in ("topic", "partition", "offset", "metadata", "leader_epoch", "error"):
        assert getattr(ours, name) == getattr(theirs, name)
    for other in (("t", 0), ("t", 1), ("t", 2), ("s", 1), ("u", 1)):
        mine, its = tidelog.TopicPartition(*other), confluent_kafka.TopicPartition(*other)
        assert (ours == mine, ours < mine) == (theirs == its, theirs < its)
        assert ours != mine or hash(ours) == hash(mine)


def test_messages_take_and_give_what_confluent_kafkas_do() -> None:
    values = ("t", 1, 5, b"k", b"value", [("h", b"x")], None, (1, 99), 0.5, 7)
    ours, theirs = tidelog.Message(*values), confluent_kafka.Message(*values)
    for name in (
        *("topic", "partition", "offset", "key", "value", "headers", "error", "timestamp", "latency", "leader_epoch"),
    ):
        assert getattr(ours, name)() == getattr(theirs, name)()
    assert len(ours) == len(theirs) == 5


def test_errors_compare_as_confluent_kafkas() -> None:
    codes = (-185, -191, 0, 3)
    for code in codes:
        ours, theirs = tidelog.KafkaError(code), confluent_kafka.KafkaError(code)
        assert (ours.code(), ours.fatal()) == (theirs.code(), theirs.fatal())
        for other in codes:
            for mine, its in ((other, other), (tidelog.KafkaError(other), confluent_kafka.KafkaError(other))):
                assert (ours == mine, ours < mine, ours <= mine, ours > mine, ours >= mine) == (
                    *(theirs == its, theirs < its, theirs <= its, theirs > its, theirs >= its),
                )
        assert tidelog.KafkaException(ours).args[0] is ours
