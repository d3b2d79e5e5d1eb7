"""SASL exchanges of every kind, valid and not, with Apache Kafka and with Tidelog: the same answers, the same ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from compat.jars import Unavailable
from compat.wire.pair import addresses
from compat.wire.sasl import CLOSED, KNOWN, SEQUENCES, SETTINGS, Exchange

from tidelog_foundation.config.endpoints import parse_address

pytestmark = pytest.mark.compat

_READY_S = 60.0


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    kafka_map = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"}
    tidelog_map = {"listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT"}
    try:
        with addresses(SETTINGS | kafka_map, SETTINGS | tidelog_map) as found:
            kafka, tidelog = map(parse_address, found)
            _wait_until_ready(*kafka)
            _wait_until_ready(*tidelog)
            yield kafka, tidelog
    except Unavailable as error:
        pytest.skip(str(error))


def _wait_until_ready(host: str, port: int) -> None:
    ends = time.monotonic() + _READY_S
    while True:
        try:
            if SEQUENCES[0].answers(host, port)[-1] != CLOSED:
                return
        except OSError:
            pass
        assert time.monotonic() < ends, "no login succeeds"
        time.sleep(0.2)


@pytest.mark.parametrize("exchange", SEQUENCES, ids=lambda each: each.name)
def test_exchange_is_answered_as_by_kafka(both: tuple[tuple[str, int], tuple[str, int]], exchange: Exchange) -> None:
    kafka, tidelog = (exchange.answers(*address) for address in both)
    if exchange.name in KNOWN:
        assert tidelog != kafka, "it does not differ any more"
    else:
        assert tidelog == kafka
