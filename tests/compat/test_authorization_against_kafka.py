"""The answers of Kafka's StandardAuthorizer and of ours, field by field."""

from __future__ import annotations

import pytest
from compat.jars import Unavailable
from compat.wire.authorization import AUTHORIZATION
from compat.wire.known import KNOWN
from compat.wire.pair import pair

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
pytestmark = pytest.mark.compat


def test_denials_are_those_of_kafka() -> None:
    try:
        with pair(SETTINGS) as (kafka, tidelog):
            found = [
                str(d)
                for family in AUTHORIZATION
                for d in dict.fromkeys(family.compared(kafka, tidelog))
                if not any(known.covers(d) for known in KNOWN)
            ]
    except Unavailable as error:
        pytest.skip(str(error))
    assert not found, "\n".join(found)
