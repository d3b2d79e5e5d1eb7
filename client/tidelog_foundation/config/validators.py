"""Validators of setting values. Each raises ValueError with the limit in its text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

Validator = Callable[[Any], object]
_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def at_least(minimum: float) -> Validator:
    """Return a validator that rejects numbers below ``minimum``."""

    def check(value: float) -> None:
        if value < minimum:
            raise ValueError(f"must be at least {minimum}")

    return check


def between(minimum: float, maximum: float) -> Validator:
    """Return a validator that rejects numbers below ``minimum`` or above ``maximum``."""

    def check(value: float) -> None:
        if not minimum <= value <= maximum:
            raise ValueError(f"must be from {minimum} to {maximum}")

    return check


def one_of(*choices: str | int) -> Validator:
    """Return a validator that rejects values outside ``choices``."""

    def check(value: str | int) -> None:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(map(str, choices))}")

    return check


def each_of(*choices: str) -> Validator:
    """Return a validator that rejects lists with a duplicate or an element outside ``choices``."""

    def check(values: tuple[str, ...]) -> None:
        if set(values) - set(choices) or len(set(values)) != len(values):
            raise ValueError(f"must be a list of {', '.join(choices)}, each at most once")

    return check


def any_of(*checks: Validator) -> Validator:
    """Return a validator that rejects values that all ``checks`` reject."""

    def check(value: Any) -> None:
        faults = []
        for each in checks:
            try:
                each(value)
            except ValueError as fault:
                faults.append(str(fault))
            else:
                return
        raise ValueError(" or ".join(faults))

    return check


def not_empty(value: Any) -> None:
    """Raise ValueError for an empty string or list."""
    if not value:
        raise ValueError("must not be empty")


def throttled_replicas(values: tuple[str, ...]) -> None:
    """Accept ``*`` or a list of ``partition:broker`` only (Kafka's ThrottledReplicaListValidator, KIP-73)."""
    if values != ("*",) and not all(_REPLICA.fullmatch(v) for v in values):
        raise ValueError("must be * or a list of partition:broker")


def all_or_none(values: tuple[str, ...]) -> None:
    """Accept ``*`` or an empty list only."""
    if values not in ((), ("*",)):
        raise ValueError("must be * for all, or empty: single ones are not supported")


def address_limits(text: str) -> None:
    """Accept numbers by address, as :func:`parse_address_limits` reads them."""
    parse_address_limits(text)


def parse_address_limits(text: str) -> dict[str, int]:
    """Return the numbers in ``address:number,address:number``, by address.

    Raises:
        ValueError: An entry is invalid; the message contains it.
    """
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, number = entry.rpartition(":")
        try:
            address = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
            limits[address] = int(number)
        except ValueError:
            raise ValueError(f"{entry!r} is not an address and a number, such as 10.0.0.1:100") from None
        if limits[address] < 0:
            raise ValueError(f"{entry!r}: the number must be at least 0")
    return limits
