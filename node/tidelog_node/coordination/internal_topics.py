"""The partition of an internal topic that the records of an id belong to, as in Kafka."""

from __future__ import annotations

_INT32, _SIGN = 2**32, 2**31


def partition_for(owner: str, partitions: int) -> int:
    """Return the partition of an id's records among ``partitions`` (Kafka's Utils.abs of the hash code)."""
    number = java_hash(owner)
    return (0 if number == -_SIGN else abs(number)) % partitions


def java_hash(text: str) -> int:
    """Return Java's String.hashCode over the UTF-16 units, an int32."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) % _INT32
    return number - _INT32 if number >= _SIGN else number
