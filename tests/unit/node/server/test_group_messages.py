"""The requests and responses of groups and their protobuf messages."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from group_codecs import codec_of
from hypothesis import given, settings
from hypothesis import strategies as st
from request_values import assert_travels, values_of

from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.groups import messages

KINDS = [
    getattr(messages, kind.name)
    for method in pb.DESCRIPTOR.services_by_name["GroupService"].methods
    for kind in (method.input_type, method.output_type)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(20))
@given(st.data())
def test_group_message_travels_unchanged(kind: type[Any], data: st.DataObject) -> None:
    codec = codec_of(kind)
    assert_travels(codec, data.draw(values_of(codec)))


def test_group_message_omits_what_only_old_kafka_clients_need() -> None:
    join = messages.JoinGroupRequest("g", joins_at_once=True, never_skips_assignment=True)
    codec = codec_of(messages.JoinGroupRequest)
    assert codec.from_message(codec.to_message(join)) == messages.JoinGroupRequest("g")
