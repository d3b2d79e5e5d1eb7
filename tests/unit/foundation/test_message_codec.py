"""Codecs derived from a dataclass and the descriptor of its message."""

from __future__ import annotations

import gc
from collections.abc import Generator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from request_values import assert_travels, comparable, finished, values_of

from tidelog.v1 import admin_service_pb2, common_pb2, controller_service_pb2, group_service_pb2, log_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import TopicId
from tidelog_foundation.transport.message_codec import NOT_IN_MESSAGE, MessageCodec


class ConfigResourceType(IntEnum):
    UNSPECIFIED = 0
    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Resource:
    type: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ResourceResult:
    resource: Resource
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class AlterResponse:
    resources: tuple[ResourceResult, ...]


@dataclass(frozen=True, slots=True)
class Item:
    index: int
    current_leader_epoch: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class EpochsRequest:
    topics: tuple[Topic, ...]
    is_from_kafka: bool = field(default=False, metadata=NOT_IN_MESSAGE)


@dataclass(frozen=True, slots=True)
class MemberTopicPartitions:
    topic_id: TopicId
    partitions: tuple[int, ...]
    topic_name: str


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    error: TidelogError | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[MemberTopicPartitions, ...] | None


@dataclass(frozen=True, slots=True)
class MemberTopics:
    topics: tuple[MemberTopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class NestedHeartbeatResponse:
    error: TidelogError | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: MemberTopics | None


@dataclass(frozen=True, slots=True)
class Reassignable:
    index: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[bytes, ...]
    shutdown_may_wait: bool = False


ALTER = MessageCodec(AlterResponse, admin_service_pb2.IncrementalAlterConfigsResponse)
EPOCHS = MessageCodec(EpochsRequest, log_service_pb2.OffsetForLeaderEpochRequest)
HEARTBEAT = MessageCodec(HeartbeatResponse, group_service_pb2.ConsumerGroupHeartbeatResponse)
NESTED = MessageCodec(NestedHeartbeatResponse, group_service_pb2.ConsumerGroupHeartbeatResponse)
REASSIGNABLE = MessageCodec(Reassignable, admin_service_pb2.ReassignablePartition)
BROKER = MessageCodec(Heartbeat, controller_service_pb2.BrokerHeartbeatRequest)


@given(st.data(), st.sampled_from([ALTER, EPOCHS, HEARTBEAT, NESTED, REASSIGNABLE, BROKER]))
def test_codec_returns_every_value_that_it_sent(data: st.DataObject, codec: MessageCodec[Any, Any]) -> None:
    assert_travels(codec, data.draw(values_of(codec)))


@given(st.binary(max_size=64), st.sampled_from([ALTER, EPOCHS, HEARTBEAT, NESTED, REASSIGNABLE, BROKER]))
def test_codec_reads_every_message_that_protobuf_reads(raw: bytes, codec: MessageCodec[Any, Any]) -> None:
    try:
        message = codec.message_type.FromString(raw)
    except DecodeError:
        return
    assert comparable(finished(codec.from_message_in_steps(message))) == comparable(codec.from_message(message))


def test_codec_keeps_an_unknown_number_of_an_enum() -> None:
    message = admin_service_pb2.IncrementalAlterConfigsResponse(resources=[{"resource": {"type": 77, "name": "t"}}])
    value = ALTER.from_message(message)
    assert value.resources[0].resource.type == 77
    assert ALTER.to_message(value) == message


def test_codec_reads_defaults_of_an_absent_message_that_is_not_optional() -> None:
    value = ALTER.from_message(admin_service_pb2.IncrementalAlterConfigsResponse(resources=[{}]))
    assert value.resources == (ResourceResult(Resource(ConfigResourceType.UNSPECIFIED, ""), None),)


def test_codec_distinguishes_an_empty_list_from_an_absent_one() -> None:
    for codec in (HEARTBEAT, NESTED):
        none = codec.from_message(codec.message_type())
        empty = codec.from_message(codec.message_type(assignment={}))
        assert none.assignment is None
        assert empty.assignment in ((), MemberTopics(()))
        assert codec.to_message(empty).HasField("assignment")
        assert finished(codec.to_message_in_steps(empty)).HasField("assignment")
        assert not codec.to_message(none).HasField("assignment")
    assert REASSIGNABLE.from_message(admin_service_pb2.ReassignablePartition(replicas={})) == Reassignable(0, ())


def test_codec_sends_code_and_text_of_an_error() -> None:
    error = error_for(ErrorCode.UNKNOWN_TOPIC_ID, "no topic")
    message = HEARTBEAT.to_message(HeartbeatResponse(error, "", 0, 0, None))
    assert message.error == common_pb2.Error(code=100, message="no topic")
    assert type(HEARTBEAT.from_message(message).error) is type(error)


def test_codec_keeps_a_field_that_is_not_in_the_message_from_the_peer() -> None:
    value = EPOCHS.from_message(EPOCHS.to_message(EpochsRequest((), is_from_kafka=True)))
    assert value == EpochsRequest((), is_from_kafka=False)


def test_codec_yields_after_each_element_at_any_depth() -> None:
    items = tuple(Item(index, None, 0) for index in range(5))
    value = EpochsRequest((Topic("a", items), Topic("b", items)))
    assert _steps_of(EPOCHS.to_message_in_steps(value)) == 12
    assert _steps_of(EPOCHS.from_message_in_steps(EPOCHS.to_message(value))) == 12
    ids = tuple(MemberTopicPartitions(TopicId(bytes(16)), (1, 2), "") for _ in range(5))
    for codec, assignment in ((HEARTBEAT, ids), (NESTED, MemberTopics(ids))):
        response = codec.value_type(None, "", 0, 0, assignment)
        assert _steps_of(codec.to_message_in_steps(response)) == 5
        assert _steps_of(codec.from_message_in_steps(codec.to_message(response))) == 5


def test_codec_refuses_a_number_out_of_range() -> None:
    with pytest.raises(ValueError, match="out of range"):
        BROKER.to_message(Heartbeat(2**31, 0, 0, False, False, ()))


def test_codec_leaves_no_cyclic_garbage() -> None:
    value = HeartbeatResponse(error_for(ErrorCode.UNKNOWN_TOPIC_ID), "m", 1, 1, ())
    assert_travels(HEARTBEAT, value)
    gc.collect()
    HEARTBEAT.from_message(HEARTBEAT.to_message(value))
    assert gc.collect() == 0


@dataclass(frozen=True)
class LacksField:
    index: int


@dataclass(frozen=True)
class HasUnknownField:
    index: int
    replicas: tuple[int, ...] | None
    leader: int


@dataclass(frozen=True)
class HasWrongScalar:
    index: str
    replicas: tuple[int, ...] | None


@dataclass(frozen=True)
class CannotLack:
    index: int
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class MayLackScalar:
    index: int | None
    replicas: tuple[int, ...] | None


@dataclass(frozen=True)
class HasSingle:
    index: int
    replicas: int | None


@pytest.mark.parametrize(
    ("value_type", "text"),
    [
        (LacksField, "replicas"),
        (HasUnknownField, "leader"),
        (HasWrongScalar, "HasWrongScalar.index: .*str.* is not int"),
        (CannotLack, "CannotLack.replicas: None is a value"),
        (MayLackScalar, "MayLackScalar.index: None is not a value"),
        (HasSingle, "HasSingle.replicas"),
        (int, "needs a dataclass"),
    ],
)
def test_codec_refuses_a_dataclass_that_differs_from_its_message(value_type: type[Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        MessageCodec(value_type, admin_service_pb2.ReassignablePartition).check()


class OtherNumbers(IntEnum):
    UNSPECIFIED = 0
    TOPIC = 3
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True)
class OtherEnum:
    type: OtherNumbers
    name: str


def test_codec_refuses_an_enum_with_other_numbers() -> None:
    with pytest.raises(TypeError, match=r"OtherEnum.type: OtherNumbers and tidelog.v1.ConfigResourceType differ"):
        MessageCodec(OtherEnum, admin_service_pb2.ConfigResourceName).check()


def _steps_of(steps: Generator[None, None, object]) -> int:
    for taken in count():
        try:
            next(steps)
        except StopIteration:
            return taken
    raise AssertionError
