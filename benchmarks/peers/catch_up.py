"""A consumer that reads old records from the disk, beside a producer and a consumer that are up to date."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import process
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.load_results import latencies
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_STORED, _LIVE = "stored", "live"
_PARTITIONS: Final = 4
_BROKER: Final = 1
_RECORD_BYTES: Final = 1_024
_RATE: Final = 1_000
_FILL_S: Final = 900.0
_COLD_SHARE: Final = 0.9
"""The part of the records that must come from the disk. Some of the pages are in use when they are dropped."""
_MB, _GB = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class _CaughtUp:
    """One round: the reader's answer, and those of the live consumer alone and beside the reader."""

    reader: Answer
    alone: Answer
    beside: Answer
    resident_mb: float


def catch_up(clusters: Clusters) -> list[Result]:
    """Fill a topic, and read all of it from the disk in each round.

    Raises:
        RuntimeError: A broker has not read the records from the disk, or stores them compressed.
    """
    client = LoadClient()
    mib = clusters.options.pick(4_096, 1_024)
    records = mib * 2**20 // _RECORD_BYTES
    for peer in clusters.peers:
        for topic in (_STORED, _LIVE):
            create_topic(peer, topic, _PARTITIONS, clusters.replicas)
        clusters.options.say(f"writing {mib:,} MiB to {peer.name}")
        flags = {"topic": _STORED, "bytes": _RECORD_BYTES, "records": records, "seconds": _FILL_S}
        client.run(peer, "produce", flags, 2 * _FILL_S)
    found = clusters.in_turns(partial(_read, clusters, client, records), rounds=clusters.options.pick(3, 1))
    name = f"catch up from the disk, {mib:,} MiB, {clusters.text}, beside {_RATE:,} records/s"
    alone, beside = (
        Found({peer: [getattr(one, which) for one in rounds] for peer, rounds in found.rounds.items()})
        for which in ("alone", "beside")
    )
    return [
        found.result(name, "MB/s", lambda it: it.reader["bytes"] / it.reader["seconds"] / _MB, "higher", at_least=1),
        found.result(
            f"{name}: CPU of the cluster",
            "s/GB",
            lambda it: it.reader["cpu_s"] / it.reader["bytes"] * _GB,
            "lower",
        ),
        found.result(f"{name}: resident memory", "MB", lambda it: it.resident_mb, "lower"),
        *latencies(alone, "the live consumer alone: end to end", "end_to_end", ("p50", "p99", "max")),
        *latencies(beside, "the live consumer beside it: end to end", "end_to_end", ("p50", "p99", "max"), (None, 1)),
    ]


def _read(clusters: Clusters, client: LoadClient, records: int, peer: Peer) -> _CaughtUp:
    clusters.options.say(f"a live consumer of {peer.name}")
    live = {"topic": _LIVE, "rate": _RATE, "bytes": _RECORD_BYTES}
    alone = client.run(peer, "live", {**live, "seconds": clusters.options.pick(15, 5)})
    size = _drop_pages(peer.data_folder(_BROKER), _STORED)
    _check_stored(peer, size, records)
    pid = peer.broker_pid(_BROKER)
    clusters.options.say(f"reading {size / _MB:,.0f} MB from the disk of {peer.name}")
    with client.started(peer, "live", {**live, "seconds": _FILL_S, "until_input_ends": True}) as running:
        running.first_line()
        before = process.disk_read_bytes(pid)
        reader = client.run(peer, "read", {"topic": _STORED, "records": records})
        from_disk = process.disk_read_bytes(pid) - before
        beside = running.answer()
    if from_disk < _COLD_SHARE * size:
        raise RuntimeError(f"{peer.name} has read {from_disk:,} of {size:,} bytes from the disk: use a real disk")
    return _CaughtUp(reader, alone, beside, peer.memory().resident)


def _check_stored(peer: Peer, size: int, records: int) -> None:
    """Raise RuntimeError if the segments are smaller than the values of their records, hence compressed."""
    if size < records * _RECORD_BYTES:
        raise RuntimeError(f"{peer.name} stores {records:,} records of {_RECORD_BYTES} bytes in {size:,} bytes")


def _drop_pages(folder: Path, topic: str) -> int:
    """Write a topic's segments to the disk, drop them from the page cache, and return their bytes."""
    size = 0
    for path in folder.glob(f"{topic}-*/*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(file).st_size
        finally:
            os.close(file)
    return size
