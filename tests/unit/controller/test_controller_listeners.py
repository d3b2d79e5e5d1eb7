"""A broker's registered listeners: those that a controller accepts, and those that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import ListenerEndpoint


def listener(name: str = "PLAINTEXT", host: str = "h", port: int = 9093, protocol: str = "PLAINTEXT") -> Any:
    return ListenerEndpoint(name=name, host=host, port=port, security_protocol=protocol)


GRPC = listener("GRPC", "h", 9092, "GRPC")


def test_broker_is_registered_with_all_its_listeners(driver: Any) -> None:
    driver.register(1, listeners=[GRPC, listener()])
    assert driver.image.brokers[1].listeners == (
        ListenerEndpoint("GRPC", "h", 9092, "GRPC"),
        ListenerEndpoint("PLAINTEXT", "h", 9093, "PLAINTEXT"),
    )


def test_broker_of_an_older_version_is_registered_without_listeners(driver: Any) -> None:
    driver.register(1)
    assert driver.image.brokers[1].listeners == ()


def test_broker_that_registers_again_may_have_other_listeners(driver: Any) -> None:
    epoch = driver.register(1, listeners=[GRPC])
    assert driver.register(1, listeners=[GRPC, listener()]) == epoch
    assert [x.name for x in driver.image.brokers[1].listeners] == ["GRPC", "PLAINTEXT"]


@pytest.mark.parametrize(
    ("listeners", "sentence"),
    [
        ([GRPC, listener(), listener(port=9094)], "broker 1 has the listener 'PLAINTEXT' 2 times"),
        ([GRPC, listener(port=0)], "broker 1 has the invalid listener 'PLAINTEXT://h:0'"),
        ([GRPC, listener(port=65_536)], "invalid listener 'PLAINTEXT://h:65536'"),
        ([GRPC, listener(host="")], "invalid listener 'PLAINTEXT://:9093'"),
        ([GRPC, listener(name="")], "invalid listener '://h:9093'"),
        ([GRPC, listener(protocol="")], "invalid listener 'PLAINTEXT://h:9093'"),
        ([GRPC, listener(host="h" * 256)], "invalid listener 'PLAINTEXT://hhhh"),
        ([listener()], "the endpoint h:9092, which no GRPC listener of it has"),
        ([listener("GRPC", "h", 9093, "GRPC")], "the endpoint h:9092, which no GRPC listener of it has"),
        ([listener(str(i), port=i + 1) for i in range(101)], "has 101 listeners, more than 100"),
    ],
)
def test_listeners_that_cannot_be_are_refused(driver: Any, listeners: list[Any], sentence: str) -> None:
    with pytest.raises(TidelogError, match=sentence) as caught:
        driver.register(1, listeners=listeners)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert 1 not in driver.image.brokers
