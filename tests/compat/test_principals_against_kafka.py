"""Every API by every kind of caller, at Apache Kafka and at Tidelog, secured alike: the same codes and omissions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache

import pytest
from compat.jars import Unavailable
from compat.wire.case import Family
from compat.wire.compare import Difference
from compat.wire.known import KNOWN_OF_CALLERS, is_known
from compat.wire.pair import addresses
from compat.wire.principals import CASES, SETTINGS, USERS, callers
from compat.wire.side import Side

from tidelog_node.kafka.protocol.api_keys import ApiKey

pytestmark = pytest.mark.compat

Compared = Callable[[str], Collection[Difference]]
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


@pytest.fixture(scope="module")
def compared(both: Mapping[str, tuple[Side, Side]]) -> Compared:
    """The differences of a caller, compared once."""
    served = [side.serves() for side in both["admin"]]

    def differences(user: str) -> Collection[Difference]:
        family = Family("principals", [replace(case, name=f"{user}: {case.name}") for case in CASES])
        return dict.fromkeys(family.compared(*both[user], served))

    return cache(differences)


@pytest.mark.parametrize("user", USERS)
def test_answers_to_a_caller_are_those_of_kafka(compared: Compared, user: str) -> None:
    new = [str(found) for found in compared(user) if not is_known(found)]
    assert not new, "these differ (case, field, Kafka, Tidelog):\n" + "\n".join(new)


def test_what_is_known_to_differ_still_does(compared: Compared) -> None:
    found = [difference for user in USERS for difference in compared(user)]
    gone = [str(known) for known in KNOWN_OF_CALLERS if not any(known.covers(difference) for difference in found)]
    assert not gone, "these do not differ any more:\n" + "\n".join(gone)
