"""The speed at which a restarted follower copies missed data, compared with a plain copy of the same files.

    python -m benchmarks.replication_catch_up [--quick]

The cluster has three controllers and three nodes. One node is stopped, records are written in batches of 64 KiB, and
the node is started again. The time runs from its first new bytes until it has all of them, by the size of its files. In
the same round ``cp`` copies the leaders' files, the same bytes, on the same disk: once plainly, and once with an fsync
of the copies, which is compared with the follower's time including an fsync of its files. All data is in the page cache
when the follower begins, as with cp.

Between rounds the follower is stopped and its copy of the topic removed, so that each round copies everything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.options import Options
from benchmarks.replication_load import Leadership, wait_for
from benchmarks.result import Bar, Result
from benchmarks.rounds import Rounds
from benchmarks.suite import run_alone
from tidelog import KafkaError, Message, Producer
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

_MIB = 1 << 20
_BATCH_BYTES, _VALUE_BYTES = 64 << 10, 8_000
_LOOK_S = 0.002
_TIMEOUT_S = 120.0
_COPY, _SYNCED_COPY, _FOLLOWER, _SYNCED_FOLLOWER = "cp", "cp and fsync", "follower", "follower and fsync"


def run(options: Options) -> list[Result]:
    """Copy a gibibyte of one partition, and of eight (quick: 128 MiB)."""
    results = []
    with LocalCluster() as cluster:
        for partitions in (1, 8):
            results += _measure(options, cluster, partitions)
    return results


def _measure(options: Options, cluster: LocalCluster, partitions: int) -> list[Result]:
    size, rounds = options.pick(1024, 128) * _MIB, options.pick(5, 2)
    topic = f"behind-{partitions}"
    with Leadership(cluster, topic, partitions, min_insync_replicas=1) as leadership:
        led = leadership.by_node()
        follower = cluster.nodes[min(cluster.nodes, key=lambda node: len(led.get(node, ())))]
        follower.stop()
        options.say(f"{partitions} partitions: writing {size // _MIB} MiB while a follower is down")
        _write(cluster, topic, partitions, size)
        options.say(f"{partitions} partitions: copying, and catching up")
        found = _Trial(cluster, leadership, follower, topic).rounds(rounds)
        follower.start()
    name = f"follower catches up, {size // _MIB} MiB of {partitions} partition{'s' * (partitions > 1)}"
    return [
        _result(name, found, _FOLLOWER, _COPY, size),
        _result(f"{name}, and fsync", found, _SYNCED_FOLLOWER, _SYNCED_COPY, size),
    ]


def _result(name: str, rounds: Rounds, follower: str, copy: str, size: int) -> Result:
    rate, copied = size / rounds.median(follower) / 1e6, size / rounds.median(copy) / 1e6
    ratio = rounds.speed_ratio(follower, copy)
    return Result(name, rate, "MB/s", f"{copy} at {copied:,.0f} MB/s", ratio, Bar.on_ratio(at_least=0.5))


class _Trial:
    """The rounds of one topic. The follower has none of its data at the start of each."""

    def __init__(self, cluster: LocalCluster, leadership: Leadership, follower: ProcessHandle, topic: str) -> None:
        self._leadership = leadership
        self._follower = follower
        self._topic = topic
        leaders = {p: cluster.nodes[node] for node, led in leadership.by_node().items() for p in led}
        folders = [node.directory / "data" / f"{topic}-{partition}" for partition, node in leaders.items()]
        self._sources = [path for folder in folders for path in sorted(folder.glob("*.log"))]
        self._size = _size_of(self._sources)

    def rounds(self, count: int) -> Rounds:
        """Measure all four variants ``count`` times, after a round that does not count."""
        seconds: dict[str, list[float]] = {_COPY: [], _SYNCED_COPY: [], _FOLLOWER: [], _SYNCED_FOLLOWER: []}
        for index in range(-1, count):
            taken = (*self._copy(), *self._catch_up())
            if index >= 0:
                for name, value in zip(seconds, taken, strict=True):
                    seconds[name].append(value)
        return Rounds(seconds)

    def _copy(self) -> tuple[float, float]:
        """Return the seconds of a copy of the leaders' files, and of one with an fsync."""
        target = self._follower.directory / "copy"
        target.mkdir()
        os.sync()
        started = time.perf_counter()
        for index, source in enumerate(self._sources):
            # A copy by reference would copy nothing on some file systems.
            subprocess.run(["cp", "--reflink=never", source, target / f"{index}.log"], check=True)
        copied = time.perf_counter() - started
        _fsync(target.iterdir())
        synced = time.perf_counter() - started
        shutil.rmtree(target)
        return copied, synced

    def _catch_up(self) -> tuple[float, float]:
        """Return the follower's seconds for as many bytes, without and with an fsync of its files."""
        for folder in self._folders():
            shutil.rmtree(folder)
        os.sync()
        self._follower.start()
        wait_for(lambda: self._copied() > 0, "the first bytes on the follower", look_s=_LOOK_S)
        first, started = self._copied(), time.perf_counter()
        wait_for(lambda: self._copied() >= self._size, "all bytes on the follower", look_s=_LOOK_S)
        caught_up = time.perf_counter() - started
        _fsync(self._files())
        synced = time.perf_counter() - started
        self._leadership.wait_whole()
        self._follower.stop()
        assert self._copied() == self._size, (self._copied(), self._size)
        # The first bytes arrived before the clock was started.
        share = self._size / (self._size - first)
        return caught_up * share, synced * share

    def _copied(self) -> int:
        return _size_of(self._files())

    def _files(self) -> list[Path]:
        return [path for folder in self._folders() for path in folder.glob("*.log")]

    def _folders(self) -> list[Path]:
        return sorted((self._follower.directory / "data").glob(f"{self._topic}-[0-9]*"))


def _write(cluster: LocalCluster, topic: str, partitions: int, size: int) -> None:
    value = os.urandom(_VALUE_BYTES)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.size": _BATCH_BYTES}
    failed: list[str] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    with Producer(config) as producer:
        for index in range(size // _VALUE_BYTES):
            while len(producer) > 5_000:
                producer.poll(0.01)
            producer.produce(topic, value, partition=index % partitions, on_delivery=note)
        assert producer.flush(_TIMEOUT_S) == 0
    assert not failed, failed[:3]


def _size_of(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _fsync(paths: Iterable[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


if __name__ == "__main__":
    run_alone(run)
