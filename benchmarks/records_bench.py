"""Rates of building and decoding record batches: both engines next to aiokafka's compiled code, in one run.

    python benchmarks/records_bench.py [--records 10000] [--size 100] [--rounds 15]

Each figure is the best of several rounds, taken in turns, so that a busy machine disturbs all alike; read the ratios.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidelog.records import (
    RecordBatchBuilder,
    arrow,
    builder,
    check_records,
    read_records,
    reader,
    to_arrow,
    validation,
)

PEER = "aiokafka"


def main() -> None:
    arguments = _arguments()
    values = [b"%010d" % i * (arguments.size // 10) for i in range(arguments.records)]
    engines = {name: module for name in ("_fast", "_pure") if (module := _engine(name))}
    batch = _build(values)
    works: dict[str, dict[str, Callable[[], Any]]] = {
        "build": {PEER: lambda: _peer_build(values), **_each(engines, lambda: _build(values))},
        "read": {PEER: lambda: _peer_read(batch), **_each(engines, lambda: _read(batch))},
        "to_arrow": _each(engines, lambda: to_arrow(batch, 0, len(values))),
        "check": _each(engines, lambda: check_records(batch)),
    }
    print(
        f"{arguments.records} records of {len(values[0])} bytes, best of {arguments.rounds}; batch {len(batch)} bytes"
    )
    for work, variants in works.items():
        _report(work, _best(variants, arguments.rounds), arguments.records, len(batch))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


def _engine(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"tidelog.records.{name}")
    except ImportError:
        print(f"{name} is not built: python hatch_build.py client/tidelog/records/_fast.pyx")
        return None


def _each(engines: dict[str, ModuleType], work: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    def on(engine: ModuleType) -> Callable[[], Any]:
        def run() -> Any:
            for user in (arrow, builder, reader, validation):
                user.engine = engine  # type: ignore[attr-defined]
            return work()

        return run

    return {name: on(engine) for name, engine in engines.items()}


def _build(values: list[bytes]) -> bytes:
    batch = RecordBatchBuilder()
    append = batch.append
    for value in values:
        append(None, value, (), 1_700_000_000_000)
    return batch.build()


def _peer_build(values: list[bytes]) -> bytes:
    batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    append = batch.append
    for offset, value in enumerate(values):
        append(offset, 1_700_000_000_000, None, value, [])
    return bytes(batch.build())


def _read(batch: bytes) -> int:
    return sum(len(record.value or b"") for record in read_records(batch))


def _peer_read(batch: bytes) -> int:
    records = DefaultRecordBatch(batch)
    assert records.validate_crc()
    return sum(len(record.value) for record in records)


def _best(variants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, work in variants.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _report(work: str, seconds: dict[str, float], records: int, size: int) -> None:
    reference = seconds.get(PEER, next(iter(seconds.values())))
    for name, taken in seconds.items():
        rates = f"{records / taken / 1e6:8.2f} M records/s {size / taken / 1e6:9.0f} MB/s"
        print(f"{work:>9} {name:>9} {rates} {reference / taken:7.2f}x")


if __name__ == "__main__":
    main()
