"""Every API by every kind of caller, at Apache Kafka and at Tidelog, secured alike: the same codes and omissions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from compat.jars import Unavailable
from compat.wire.case import Family
from compat.wire.known import is_known
from compat.wire.pair import addresses
from compat.wire.principals import CASES, SETTINGS, USERS, callers
from compat.wire.side import Side

from tidelog_node.kafka.protocol.api_keys import ApiKey

pytestmark = pytest.mark.compat

_LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Compared by test_sasl_against_kafka.py."""


@pytest.fixture(scope="module")
def both() -> Iterator[Mapping[str, tuple[Side, Side]]]:
    protocols = SETTINGS["listener.security.protocol.map"]
    kafka = {**SETTINGS, "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}"}
    tidelog = {**SETTINGS, "listener.security.protocol.map": f"GRPC:GRPC,{protocols}"}
    with contextlib.ExitStack() as stack:
        try:
            sides = callers(*stack.enter_context(addresses(kafka, tidelog)))
        except Unavailable as error:
            pytest.skip(str(error))
        for side in (side for each in sides.values() for side in each):
            stack.enter_context(side)
        yield sides


def test_every_api_that_both_serve_has_a_case(both: Mapping[str, tuple[Side, Side]]) -> None:
    admins = both["admin"]
    served = set.intersection(*(set(side.serves()) for side in admins))
    asked = {(case.request if not callable(case.request) else case.request(admins[0])).API_KEY for case in CASES}
    assert {ApiKey(key) for key in served} - {ApiKey(key) for key in asked} == _LOGIN


@pytest.mark.parametrize("user", USERS)
def test_answers_to_a_caller_are_those_of_kafka(both: Mapping[str, tuple[Side, Side]], user: str) -> None:
    family = Family("principals", [replace(case, name=f"{user}: {case.name}") for case in CASES])
    served = [side.serves() for side in both["admin"]]
    found = dict.fromkeys(family.compared(*both[user], served))
    unknown = [str(difference) for difference in found if not is_known(difference)]
    assert not unknown, "\n".join(unknown)
