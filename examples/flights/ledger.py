"""The delivery reports of all rows: their partition, the time of their acknowledgement, and their latency."""

from __future__ import annotations

import time
import zlib
from array import array
from dataclasses import dataclass, field

from tidelog import KafkaError, Message

_NOT_ACKNOWLEDGED = -1


@dataclass(slots=True)
class Ledger:
    """One entry per row, filled by delivery callbacks on the thread that polls the producer."""

    rows: int
    acknowledged: int = 0
    sent_bytes: int = 0
    failures: list[str] = field(default_factory=list)
    partitions: array[int] = field(init=False)
    offsets: array[int] = field(init=False)
    checksums: array[int] = field(init=False)
    ack_times_s: array[float] = field(init=False)
    latencies_s: array[float] = field(init=False)

    def __post_init__(self) -> None:
        self.partitions = array("i", [_NOT_ACKNOWLEDGED]) * self.rows
        self.offsets = array("q", [_NOT_ACKNOWLEDGED]) * self.rows
        self.checksums = array("L", [0]) * self.rows
        self.ack_times_s = array("d", [0.0]) * self.rows
        self.latencies_s = array("d", [0.0]) * self.rows

    def sent(self, row: int, value: bytes) -> None:
        """Store a row's checksum before it is sent."""
        self.checksums[row] = zlib.crc32(value)
        self.sent_bytes += len(value)

    def delivered(self, row: int, error: KafkaError | None, message: Message) -> None:
        """Process a delivery report. functools.partial binds the row."""
        if error is not None:
            self.failures.append(f"row {row}: {error}")
            return
        self.acknowledged += 1
        self.partitions[row] = message.partition()
        self.offsets[row] = message.offset()
        self.ack_times_s[row] = time.monotonic()
        self.latencies_s[row] = message.latency()
