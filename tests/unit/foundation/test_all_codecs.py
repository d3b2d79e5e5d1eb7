"""Every dataclass that the servers send or receive has the fields of its message."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

import pytest

from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.services import Service
from tidelog_node.server import log_service as node_records
from tidelog_node.server import services as node_services
from tidelog_quorum.server import services as quorum_services


def codecs_in(value: Any, depth: int = 3) -> Iterator[MessageCodec[Any, Any]]:
    """Yield the codecs in a module's variable."""
    if isinstance(value, MessageCodec):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in value.values():
            yield from codecs_in(each, depth - 1)
    elif depth and isinstance(value, (tuple, list)):
        for each in value:
            yield from codecs_in(each, depth - 1)


def test_codecs_of_all_modules_of_the_servers_fit() -> None:
    importlib.import_module("tidelog_node.server.startup")
    importlib.import_module("tidelog_quorum.server.process")
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("tidelog_")]
    found = [codec for module in modules for value in list(vars(module).values()) for codec in codecs_in(value)]
    assert len(found) > 30
    for codec in found:
        codec.check()


@pytest.mark.parametrize(
    "make",
    [
        lambda part: node_records.log_service(part, part),
        node_services.admin_service,
        lambda part: node_services.group_service(part, part, part),
        node_services.transaction_service,
        lambda part: quorum_services.controller_service("c", part, part, part),
        lambda part: quorum_services.admin_service("c", part),
        lambda part: quorum_services.quorum_service("c", part, part),
    ],
    ids=["log", "admin", "groups", "transactions", "controller", "quorum admin", "quorum"],
)
def test_codecs_of_a_service_fit(make: Any) -> None:
    service = make(MagicMock())
    assert isinstance(service, Service)
    service.check()
