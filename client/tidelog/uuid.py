"""Kafka's Uuid, with confluent-kafka's names."""

from __future__ import annotations

import base64
from typing import Self

_MASK = 2**64 - 1


class Uuid:
    """128 bits from two signed 64-bit numbers; its text is base64 without padding, as in librdkafka."""

    __slots__ = ("_least", "_most")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._most = _signed(most_significant_bits)
        self._least = _signed(least_significant_bits)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the Uuid of 16 bytes in network order."""
        number = int.from_bytes(data, "big")
        return cls(number >> 64, number)

    def get_most_significant_bits(self) -> int:
        """Return the upper half as a signed number."""
        return self._most

    def get_least_significant_bits(self) -> int:
        """Return the lower half as a signed number."""
        return self._least

    def __str__(self) -> str:
        return base64.b64encode(bytes(self)).decode().rstrip("=")

    def __repr__(self) -> str:
        return str(self)

    def __bytes__(self) -> bytes:
        return int(self).to_bytes(16, "big")

    def __int__(self) -> int:
        return (self._most & _MASK) << 64 | (self._least & _MASK)

    def __hash__(self) -> int:
        return hash((self._most, self._least))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uuid) and (self._most, self._least) == (other._most, other._least)


def _signed(number: int) -> int:
    number &= _MASK
    return number - 2**64 if number >= 2**63 else number
