"""The names of confluent-kafka in our client, with arguments in its order, and reasons for those that are missing."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.aio
import confluent_kafka.serialization
import pytest

import tidelog
import tidelog.admin
import tidelog.aio
import tidelog.serialization

SHARE_GROUPS = {"delivery_count"}
LEFT_OUT: dict[str, set[str]] = {"Message": SHARE_GROUPS}
OTHER_ARGUMENTS = {
    # Arrow columns and lists in place of one dict per record.
    *(("Producer", "produce_batch"), ("SerializingProducer", "produce_batch")),
    # An option that says what it does, and not `kwargs` under another name.
    *(("TopicDescription", "__init__"), ("DescribeClusterResult", "__init__"), ("OffsetSpec", "__init__")),
    ("ConsumerGroupDescription", "__init__"),
    # The settings and what they are given to, where `conf` is no dictionary of settings.
    *(("SerializerBuilder", "build"), ("DeserializerBuilder", "build")),
    # `conf` again: what confluent-kafka's class is called with is that of its `__await__`.
    *(("AsyncSerializingProducer", "__init__"), ("AsyncDeserializingConsumer", "__init__")),
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
            (confluent_kafka.aio, tidelog.aio),
        )
        for name in sorted(set(dir(theirs)) & set(dir(ours)))
        if inspect.isclass(getattr(theirs, name)) and not hasattr(typing, name)
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
        function = ours if method == "__init__" else getattr(ours, method)
        given = [p for p in inspect.signature(function).parameters if p != "self"]
        if wanted is not None:
            assert given[: len(wanted)] == wanted, method


def _arguments(owner: type, method: str) -> list[str] | None:
    """Of the text that describes a function in C, or else of a signature; None: nothing says it."""
    function: Any = owner if method == "__init__" else getattr(owner, method)
    described = re.search(rf"py:function:: *{function.__name__}\(([^)]*)\)", function.__doc__ or "")
    if described is not None:
        names = [each.partition("=")[0].strip(" []") for each in described[1].split(",")]
    else:
        try:
            names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            return None
        if names == ["self", "object"]:  # the signature of any function in C with one argument, since Python 3.13
            return None
    # One dictionary of settings, or what is spelled out on our side.
    return [n for n in names if n and n not in ("self", "conf", "kwargs", "args", "config")]


SHARE_CONSUMERS = {
    # Share groups, which Kafka has had since 4.0 only.
    *("AcknowledgeType", "DeserializingShareConsumer", "ShareConsumer", "Messages", "deserializing_share_consumer"),
    *("ConcurrentModificationException", "IllegalStateException"),
    *(f"SHARE_ACKNOWLEDGE_TYPE_{how}" for how in ("ACCEPT", "REJECT", "RELEASE")),
}
MODULES = {
    "": {"os", "kafkatest"},
    "admin": {"concurrent", "warnings", "string_type"},
    "aio": {"producer"},
    "avro": {"warnings"},
    "cimpl": set[str](),
    "deserializing_consumer": set[str](),
    "error": {"Message"},
    "schema_registry": {"io", "common"},
    "schema_registry.avro": set[str](),
    "schema_registry.confluent": set[str](),
    "schema_registry.confluent.meta_pb2": set[str](),
    "schema_registry.error": set[str](),
    "schema_registry.json_schema": set[str](),
    "schema_registry.protobuf": set[str](),
    "schema_registry.schema_registry_client": set[str](),
    "schema_registry.serde": set[str](),
    "schema_registry.rule_registry": set[str](),
    "serialization": {"Enum", "KafkaException"},
    "serializing_producer": set[str](),
}
"""The modules of confluent-kafka, with the names in them that are only imported there for their own use."""
NOT_MODULES = {
    # A tool for Kafka's own system tests, and internals.
    *("kafkatest", "deserializing_share_consumer"),
    # Rules of schemas: they are imported from confluent-kafka, whose serializers run them.
    *("schema_registry.rules", "schema_registry.common"),
    *("schema_registry.confluent.type", "schema_registry.confluent.types"),
    "schema_registry.wildcard_matcher",
}


@pytest.mark.parametrize("module", MODULES)
def test_names_of_a_module_are_those_of_confluent_kafka(module: str) -> None:
    reason = "needs tidelog[schema-registry]"
    theirs = pytest.importorskip(f"confluent_kafka.{module}".rstrip("."), reason=reason, exc_type=ImportError)
    ours = importlib.import_module(f"tidelog.{module}".rstrip("."))
    wanted = set(getattr(theirs, "__all__", ())) if module.startswith("schema_registry") else _own_names(theirs)
    left_out = SHARE_CONSUMERS | MODULES[module]
    assert {name for name in wanted - left_out if not hasattr(ours, name)} == set()


@pytest.mark.parametrize(("module", "kind"), [("avro", "Avro"), ("json_schema", "JSON"), ("protobuf", "Protobuf")])
def test_serializers_for_asyncio_are_where_confluent_kafkas_examples_import_them(module: str, kind: str) -> None:
    pytest.importorskip(
        f"confluent_kafka.schema_registry.{module}", reason="needs tidelog[schema-registry]", exc_type=ImportError
    )
    ours = importlib.import_module(f"tidelog.schema_registry._async.{module}")
    theirs = importlib.import_module(f"confluent_kafka.schema_registry._async.{module}")
    for name in (f"Async{kind}Serializer", f"Async{kind}Deserializer"):
        assert getattr(ours, name) is getattr(theirs, name)


def test_code_generated_from_confluents_schemas_finds_their_options() -> None:
    theirs = pytest.importorskip("confluent_kafka.schema_registry.confluent.meta_pb2", exc_type=ImportError)
    ours = importlib.import_module("tidelog.schema_registry.confluent.meta_pb2")
    assert (ours.Meta, ours.field_meta) == (theirs.Meta, theirs.field_meta)


def _own_names(module: Any) -> set[str]:
    """Return what a package offers, or what a module defines."""
    names = {name for name in dir(module) if not name.startswith("_") and not hasattr(typing, name)} - {"K", "V"}
    if hasattr(module, "__path__") or module.__name__.endswith((".cimpl", ".error")):
        return names - {"HeadersType"}
    return {name for name in names if getattr(getattr(module, name), "__module__", "") == module.__name__}


def test_every_module_of_confluent_kafka_is_there_or_left_out_for_a_reason() -> None:
    root = Path(confluent_kafka.__file__).parent
    found = {_module(root, path) for path in root.rglob("*.py")} | {"cimpl"}
    public = {name for name in found if name and not any(part.startswith("_") for part in name.split("."))}
    tops = {name for name in public if name.count(".") == 0 or name.startswith("schema_registry.")}
    left_out = {name for name in tops if any(name == out or name.startswith(f"{out}.") for out in NOT_MODULES)}
    assert tops - left_out == MODULES.keys() - {""}


def _module(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def test_numbers_have_the_values_of_confluent_kafka() -> None:
    for module in ("cimpl", "admin"):
        theirs = importlib.import_module(f"confluent_kafka.{module}")
        ours = importlib.import_module(f"tidelog.{module}")
        for name in dir(theirs):
            if isinstance(getattr(theirs, name), int) and name not in SHARE_CONSUMERS:
                assert getattr(ours, name) == getattr(theirs, name), name


def test_errors_have_the_names_and_codes_of_confluent_kafka() -> None:
    names = [name for name in dir(confluent_kafka.KafkaError) if name.lstrip("_").isupper()]
    assert {n: getattr(tidelog.KafkaError, n) for n in names} == {
        n: getattr(confluent_kafka.KafkaError, n) for n in names
    }


@pytest.mark.parametrize("bits", [(0, 0), (1 << 40, -5), (-(2**63), 2**63 - 1)])
def test_uuids_look_and_compare_as_confluent_kafkas(bits: tuple[int, int]) -> None:
    ours, theirs = tidelog.Uuid(*bits), confluent_kafka.Uuid(*bits)
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    assert ours.get_most_significant_bits() == theirs.get_most_significant_bits()
    assert ours.get_least_significant_bits() == theirs.get_least_significant_bits()
    assert ours == tidelog.Uuid(*bits) != tidelog.Uuid(7, 7)


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_keys_have_the_partitions_of_confluent_kafka(name: str) -> None:
    ours, theirs = getattr(tidelog, name), getattr(confluent_kafka, name)
    for key in (b"", b"a", b"\xff" * 5, b"a longer key"):
        assert ours(key, 7) == theirs(key, 7)
    for arguments, error in (((b"k", 0), ValueError), (("k", 3), TypeError)):
        with pytest.raises(error):
            ours(*arguments)


def test_classes_of_serializers_take_types_as_confluent_kafkas() -> None:
    for name in ("SerializingProducer", "DeserializingConsumer"):
        assert typing.get_args(getattr(tidelog, name)[str, int]) == (str, int)
    for name in ("AsyncSerializingProducer", "AsyncDeserializingConsumer"):
        assert typing.get_args(getattr(tidelog.aio, name)[str, int]) == (str, int)


def test_throttle_events_look_as_confluent_kafkas() -> None:
    assert str(tidelog.ThrottleEvent("n", 1, 0.25)) == str(confluent_kafka.ThrottleEvent("n", 1, 0.25))


RULE = ("TOPIC", "t", "LITERAL", "User:u", "*", "READ", "ALLOW")


def test_access_rules_look_and_compare_as_confluent_kafkas() -> None:
    for kind, values in (
        ("AclBinding", RULE),
        ("AclBinding", (2, "t", 3, "User:u", "*", 3, 3)),
        ("AclBindingFilter", ("ANY", None, "MATCH", None, None, "ANY", "ANY")),
    ):
        ours, theirs = (getattr(m, kind)(*values) for m in (tidelog.admin, confluent_kafka.admin))
        assert repr(ours) == repr(theirs)
        for name in ("restype", "resource_pattern_type", "operation", "permission_type"):
            assert getattr(ours, name).value == getattr(theirs, name).value
        assert ours == getattr(tidelog.admin, kind)(*values)
        assert hash(ours) == hash(getattr(tidelog.admin, kind)(*values))
    assert tidelog.admin.AclBinding(*RULE) < tidelog.admin.AclBinding("TOPIC", "u", *RULE[2:])


@pytest.mark.parametrize(
    ("kind", "position", "value", "error"),
    [
        ("AclBinding", 0, "ANY", ValueError),
        ("AclBinding", 0, "NONE", ValueError),
        ("AclBinding", 1, None, ValueError),
        ("AclBinding", 3, 5, TypeError),
        ("AclBinding", 2, "MATCH", ValueError),
        ("AclBindingFilter", 6, "UNKNOWN", ValueError),
        ("AclBindingFilter", 5, None, ValueError),
    ],
)
def test_access_rules_refuse_what_confluent_kafkas_do(kind: str, position: int, value: Any, error: type) -> None:
    values = [*RULE[:position], value, *RULE[position + 1 :]]
    for module in (confluent_kafka.admin, tidelog.admin):
        with pytest.raises(error):
            getattr(module, kind)(*values)


@pytest.mark.parametrize("given", ["topic", "TOPIC", "BROKER", 2, 4, "ANY"])
def test_resources_look_as_confluent_kafkas(given: str | int) -> None:
    for name in ("t", ""):
        ours, theirs = (module.ConfigResource(given, name) for module in (tidelog.admin, confluent_kafka.admin))
        assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))


@pytest.mark.parametrize(
    ("values", "text"), [(("table", "t"), "table"), ((99, "t"), "99"), (("topic", None), "name .*must be|name to be")]
)
def test_resources_refuse_what_confluent_kafkas_do(values: tuple[Any, Any], text: str) -> None:
    for module in (confluent_kafka.admin, tidelog.admin):
        with pytest.raises(ValueError, match=text):
            module.ConfigResource(*values)


@pytest.mark.parametrize("rack", [None, "r1"])
def test_nodes_look_as_confluent_kafkas(rack: str | None) -> None:
    ours, theirs = tidelog.admin.Node(1, "h", 9092, rack), confluent_kafka.Node(1, "h", 9092, rack)
    assert (str(ours), ours.id_string) == (str(theirs), theirs.id_string)


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
