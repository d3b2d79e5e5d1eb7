"""kcat: a tool on an older librdkafka, which asks for older versions of the APIs."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from compat.clients.client import DEADLINE_S, Client, Reader
from compat.clients.librdkafka import dotted
from compat.clients.record import Received, Record
from compat.debian import kcat
from compat.jars import Unavailable

_REBALANCED = re.compile(r"assigned: (.*)$")
_PARTITION = re.compile(r"\[(\d+)\]")


class KcatReader(Reader):
    def __init__(self, servers: str, topic: str, group: str | None, config: dict[str, Any]) -> None:
        properties = {"auto.offset.reset": "earliest", "partition.assignment.strategy": "range", **config}
        options = [part for name, value in properties.items() for part in ("-X", f"{name}={value}")]
        mode = ["-C", "-t", topic, "-o", "beginning"] if group is None else ["-G", group, topic]
        # The topic of -G comes last.
        self._process = subprocess.Popen(
            [*kcat(), "-b", servers, "-u", "-J", *options, *mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._said: list[str] = []
        self._assigned: set[int] = set()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._listen)]
        for thread in self._threads:
            thread.start()

    def poll(self, timeout_s: float) -> list[Received]:
        read = []
        try:
            line = self._lines.get(timeout=timeout_s)
            while True:
                if line is None:
                    raise RuntimeError(f"kcat ended: {''.join(self._said)}")
                read.append(_received(line))
                line = self._lines.get_nowait()
        except queue.Empty:
            return read

    def assignment(self) -> set[int]:
        return self._assigned

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if "rebalanced" in line:
                found = _REBALANCED.search(line)
                self._assigned = set() if found is None else {int(n) for n in _PARTITION.findall(found[1])}


def _received(line: str) -> Received:
    item = json.loads(line)
    key, value = (None if item[name] is None else item[name].encode() for name in ("key", "payload"))
    pairs = item.get("headers", [])
    headers = tuple(
        (name, None if text is None else text.encode()) for name, text in zip(pairs[::2], pairs[1::2], strict=True)
    )
    return Received(item["partition"], item["offset"], key, value, headers, item["ts"])


class Kcat(Client):
    """Its records are lines of text, with one set of headers for a whole run."""

    name = "kcat"
    takes_timestamps = False

    def missing(self) -> str | None:
        try:
            kcat()
        except Unavailable as error:
            return str(error)
        return None

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        properties = {"acks": "all", **dotted(config)}
        options = [part for name, value in properties.items() for part in ("-X", f"{name}={value}")]
        for (headers, partition), run in groupby(records, key=lambda record: (record.headers, record.partition)):
            more = [
                part
                for name, value in headers
                for part in ("-H", name if value is None else f"{name}={value.decode()}")
            ]
            if partition is not None:
                more += ["-p", str(partition)]
            command = [*kcat(), "-P", "-b", servers, "-t", topic, "-z", compression, "-K", "\t", "-Z", *options, *more]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdin is not None
            for record in run:
                process.stdin.write(f"{(record.key or b'').decode()}\t{(record.value or b'').decode()}\n")
                process.stdin.flush()
            _, said = process.communicate(timeout=DEADLINE_S)
            if process.returncode != 0:
                raise RuntimeError(f"kcat ended with {process.returncode}: {said}")

    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        return KcatReader(servers, topic, group, dotted(config))
