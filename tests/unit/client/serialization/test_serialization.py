"""Serializers give confluent-kafka's bytes, and say what they cannot do."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka.serialization as theirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import serialization as ours
from tidelog_foundation.errors import ErrorCode, KafkaException

_PAIRS = [
    ("String", st.text(st.characters(exclude_categories=["Cs"]))),
    ("Integer", st.integers(-(2**31), 2**31 - 1)),
    ("Double", st.floats(allow_nan=False)),
]


@pytest.mark.parametrize(("name", "values"), _PAIRS, ids=[name for name, _ in _PAIRS])
def test_serializers_write_and_read_the_bytes_of_confluent_kafka(name: str, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def check(value: Any) -> None:
        written = getattr(ours, f"{name}Serializer")()(value)
        assert written == getattr(theirs, f"{name}Serializer")()(value)
        assert getattr(ours, f"{name}Deserializer")()(written) == value

    check()


@pytest.mark.parametrize("name", ["String", "Integer", "Double", "JSON"])
def test_serializers_leave_none_alone(name: str) -> None:
    assert getattr(ours, f"{name}Serializer")()(None) is None
    assert getattr(ours, f"{name}Deserializer")()(None) is None


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (ours.IntegerSerializer(), 2**31, "2147483648"),
        (ours.IntegerSerializer(), "1", "'1'"),
        (ours.IntegerDeserializer(), b"\0\0\1", "expected 4 bytes, got 3"),
        (ours.DoubleSerializer(), "x", "'x'"),
        (ours.DoubleSerializer(), 10**309, "not a float"),
        (ours.DoubleDeserializer(), b"", "expected 8 bytes, got 0"),
        (ours.StringSerializer(), 7, "expected text, got int"),
        (ours.StringSerializer("ascii"), "ü", "ascii"),
        (ours.StringDeserializer(), b"\xff", "utf-8"),
        (ours.JSONSerializer(), float("nan"), "invalid JSON"),
        (ours.JSONSerializer(), {1, 2}, "invalid JSON"),
        (ours.JSONDeserializer(), b"{", "invalid JSON"),
        (ours.JSONDeserializer(), b"\xff\xff", "invalid JSON"),
    ],
)
def test_serializers_say_what_they_cannot_do(function: Any, value: Any, text: str) -> None:
    with pytest.raises(ours.SerializationError, match=text):
        function(value)


def test_string_serializers_know_other_codecs_and_refuse_unknown_ones() -> None:
    assert ours.StringSerializer("utf_16_be")("ab") == b"\0a\0b"
    assert ours.StringDeserializer("utf_16_be")(b"\0a\0b") == "ab"
    with pytest.raises(LookupError, match="utf_99"):
        ours.StringSerializer("utf_99")


def test_json_converts_objects_by_the_given_functions() -> None:
    context = ours.SerializationContext("flights", ours.MessageField.VALUE)
    serializer = ours.JSONSerializer(lambda obj, ctx: {"re": obj.real, "topic": ctx.topic})
    assert serializer(1 + 2j, context) == b'{"re":1.0,"topic":"flights"}'
    assert ours.JSONDeserializer(lambda plain, ctx: (plain["re"], ctx.field))(b'{"re":1.5}', context) == (1.5, "value")
    assert ours.JSONDeserializer()(ours.JSONSerializer()({"ü": [1, None]})) == {"ü": [1, None]}
    with pytest.raises(TypeError, match="to_dict must be callable, not str"):
        ours.JSONSerializer("no")  # type: ignore[arg-type]


def test_errors_of_serialization_are_confluent_kafkas() -> None:
    cause = ValueError("bad")
    for kind, base, code in (
        (ours.KeySerializationError, ours.ProduceError, ErrorCode._KEY_SERIALIZATION),
        (ours.ValueSerializationError, ours.ProduceError, ErrorCode._VALUE_SERIALIZATION),
        (ours.KeyDeserializationError, ours.ConsumeError, ErrorCode._KEY_DESERIALIZATION),
        (ours.ValueDeserializationError, ours.ConsumeError, ErrorCode._VALUE_DESERIALIZATION),
    ):
        error = kind(cause)
        assert isinstance(error, base)
        assert isinstance(error, ours.SerializationError)
        assert isinstance(error, KafkaException)
        assert (error.code, error.message, error.exception) == (code, "bad", cause)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.error, str(again.exception)) == (kind, error.error, "bad")
    assert ours.KeyDeserializationError(cause, "the message").kafka_message == "the message"
    assert ours.SerializationError("a sentence").message == "a sentence"
