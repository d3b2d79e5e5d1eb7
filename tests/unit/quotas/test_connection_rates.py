"""The rates of new connections, with an injected clock."""

from __future__ import annotations

import pytest

from tidelog_foundation.config.validators import parse_address_limits
from tidelog_foundation.quotas.rate import Windows
from tidelog_node.quotas.connection_rates import UNLIMITED, ConnectionRates


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_node_accepts_connections_at_its_rate() -> None:
    clock = Clock()
    rates, accepted = ConnectionRates(clock, Windows(3, 1_000), limit=50), 0
    while clock.now_ms < 61_000:
        accepted += 1
        clock.now_ms += max(1, rates.accept())
    assert accepted / 60 == pytest.approx(50, rel=0.1)


def test_a_node_without_a_rate_counts_nothing() -> None:
    rates = ConnectionRates(Clock(), Windows())
    assert {rates.accept() for _ in range(100_000)} == {0}


def test_a_listener_has_a_rate_of_its_own_and_the_protected_one_has_no_other() -> None:
    clock = Clock()
    rates = ConnectionRates(clock, Windows(3, 1_000))
    rates.change_limits(1, {"SLOW": 0.5, "NODES": 2})

    def delays(listener: str, *, is_protected: bool = False) -> list[int]:
        return [rates.accept(listener, is_protected=is_protected) for _ in range(7)]

    assert delays("NODES", is_protected=True) == [0] * 4 + [500, 1_000, 1_000]
    assert delays("OTHER") == [0] * 2 + [1_000] * 5, "the rate of the node"
    clock.now_ms += 10_000
    rates.change_limits(UNLIMITED, {"SLOW": 0.5})
    assert delays("SLOW") == [0] + [1_000] * 6
    assert delays("OTHER") == [0] * 7
    rates.change_limits(UNLIMITED, {"SLOW": 5})
    assert rates.accept("SLOW") == 0, "what was counted stays"


def test_refused_connections_of_an_address_do_not_count_and_others_are_not_delayed() -> None:
    clock = Clock()
    rates = ConnectionRates(clock, Windows())
    assert [rates.admit("10.0.0.1", 1) for _ in range(10)] == [0] * 10
    assert [rates.admit("10.0.0.1", 1) for _ in range(100)] == [1_000] * 100
    assert rates.admit("10.0.0.2", 1) == 0
    clock.now_ms += 11_000
    assert rates.admit("10.0.0.1", 1) == 0


def test_limits_of_addresses_are_read() -> None:
    assert parse_address_limits("") == {}
    assert parse_address_limits("10.0.0.1:5, [::1]:0,::2:7") == {"10.0.0.1": 5, "::1": 0, "::2": 7}


@pytest.mark.parametrize("text", ["localhost:5", "10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", "10.0.0.1:a"])
def test_an_invalid_limit_of_an_address_is_named(text) -> None:
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        parse_address_limits(text)
