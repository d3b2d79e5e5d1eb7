"""The vocabulary of requests and its messages."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_values import assert_travels, values_of

from tidelog.v1 import (
    admin_service_pb2,
    common_pb2,
    controller_service_pb2,
    group_service_pb2,
    log_service_pb2,
    quorum_service_pb2,
    transaction_service_pb2,
)
from tidelog_foundation import requests
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_node.groups import messages
from tidelog_node.handlers import requests as node_requests

_MESSAGES = {
    name: kind
    for module in (
        *(admin_service_pb2, common_pb2, controller_service_pb2),
        *(group_service_pb2, log_service_pb2, quorum_service_pb2, transaction_service_pb2),
    )
    for name, kind in vars(module).items()
    if isinstance(kind, type)
}


def _value_types() -> Iterator[Any]:
    names = [f"{p.__name__}.{m.name}" for p in (requests, node_requests) for m in pkgutil.iter_modules(p.__path__)]
    for module in (messages, *map(importlib.import_module, names)):
        for kind in vars(module).values():
            is_own = dataclasses.is_dataclass(kind) and getattr(kind, "__module__", None) == module.__name__
            if is_own and kind.__name__.endswith(("Request", "Response")):
                yield kind


@settings(max_examples=5)
@given(st.data())
@pytest.mark.parametrize("value_type", list(_value_types()), ids=lambda kind: kind.__name__)
def test_request_survives_the_message_of_the_same_name(value_type: Any, data: st.DataObject) -> None:
    codec = MessageCodec(value_type, _MESSAGES[value_type.__name__])
    assert_travels(codec, data.draw(values_of(codec)))


def test_request_omits_what_only_old_kafka_clients_need() -> None:
    join = messages.JoinGroupRequest("g", joins_at_once=True, never_skips_assignment=True)
    codec = MessageCodec(messages.JoinGroupRequest, group_service_pb2.JoinGroupRequest)
    assert codec.from_message(codec.to_message(join)) == messages.JoinGroupRequest("g")
