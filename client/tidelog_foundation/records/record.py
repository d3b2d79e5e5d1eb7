"""One decoded record of the pure engine; the compiled engine has a class with the same interface."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a batch.

    ``offset`` is absolute, ``timestamp_ms`` is -1 if the producer set none, and ``timestamp_type`` is 0 (create time)
    or 1 (log append time). ``None`` as key or value is Kafka's null; ``headers`` keeps order and duplicates.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
