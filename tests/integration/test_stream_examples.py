"""The examples of stream processing give the results of plain Python, on one session and one cluster."""

from __future__ import annotations

import datetime
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest
from pyspark.sql import SparkSession

from examples.flights.dataset import airline_names
from examples.streams import airline_names as airlines
from examples.streams import (
    clicks_and_searches,
    exactly_once_files,
    exactly_once_topics,
    late_windows,
    planes,
    reprocessing,
    rocksdb_state,
    word_count,
)
from examples.streams.stage import SETTINGS, Stage, flights
from tidelog.testing import FakeCluster

pytestmark = [pytest.mark.slow, pytest.mark.costly]
in_compat = pytest.mark.skipif("TIDELOG_COMPAT" not in os.environ, reason="make compat runs it; the others are a share")

FLIGHTS = 900
"""The flights of the first day, and a few of the second."""

HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with FakeCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def stage(spark: SparkSession, servers: str, tmp_path: Path) -> Iterator[Stage]:
    before = {key: spark.conf.get(key) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield Stage(spark, servers, tmp_path, FLIGHTS)
    for key, value in before.items():
        spark.conf.set(key, value)


@in_compat
def test_word_count_counts_every_word(stage: Stage) -> None:
    words = Counter(word for flight in flights(FLIGHTS) for word in word_count.announcement(flight).split())
    assert word_count.run(stage) == sorted(words.items(), key=lambda item: (-item[1], item[0]))


def test_windows_count_late_flights_within_the_grace_only(stage: Stage) -> None:
    expected, dropped = windows_of(late_windows.recorded(flights(late_windows.FLIGHTS)))
    assert late_windows.run(stage) == expected
    assert sum(late for _, _, late in expected) > 0
    assert dropped > 0


def windows_of(
    departures: list[tuple[datetime.datetime, datetime.datetime]],
) -> tuple[list[tuple[str, int, int]], int]:
    """Return the windows that Spark closes, and the flights that it drops.

    The watermark moves between micro-batches. Each batch drops rows of windows that the batch before it has closed.
    """
    size = -(-len(departures) // late_windows.BATCHES)
    windows: dict[datetime.datetime, list[bool]] = defaultdict(list)
    closed = watermark = datetime.datetime.min
    dropped = 0
    for start in range(0, len(departures), size):
        batch = departures[start : start + size]
        for scheduled, departed in batch:
            hour = scheduled.replace(minute=0)
            if hour + HOUR <= closed:
                dropped += 1
            else:
                windows[hour].append(departed >= hour + HOUR)
        closed, watermark = watermark, max(watermark, *(s - late_windows.GRACE for s, _ in batch))
    final = [
        (f"{hour:%Y-%m-%d %H:%M}", len(late), sum(late))
        for hour, late in sorted(windows.items())
        if hour + HOUR <= watermark
    ]
    return final, dropped


@in_compat
def test_static_join_gives_every_flight_its_airline(stage: Stage) -> None:
    names, counts, miles = airline_names(), Counter[str](), Counter[str]()
    for flight in flights(FLIGHTS):
        counts[names[flight["carrier"]]] += 1
        miles[names[flight["carrier"]]] += int(flight["distance"])
    expected = [(name, count, miles[name]) for name, count in counts.items()]
    assert airlines.run(stage) == sorted(expected, key=lambda row: (-row[1], row[0]))


@in_compat
def test_stream_join_pairs_clicks_with_their_searches_within_the_limit(stage: Stage) -> None:
    minutes: dict[str, list[float]] = defaultdict(list)
    for _, dest, searched, clicked in clicks_and_searches.searches_and_clicks(flights(FLIGHTS)):
        if clicked is not None and clicked - searched <= datetime.timedelta(minutes=clicks_and_searches.LIMIT_MINUTES):
            minutes[dest].append((clicked - searched).total_seconds() / 60)
    expected = [(dest, len(values), pytest.approx(mean(values))) for dest, values in minutes.items()]
    assert clicks_and_searches.run(stage) == sorted(expected, key=lambda row: (-row[1], row[0]))


def test_table_has_the_last_record_of_each_key_and_no_deleted_one(stage: Stage) -> None:
    last = {plane: airport for plane, airport in planes.landings(flights(FLIGHTS)) if airport is not None}
    del last[planes.SOLD]
    assert planes.run(stage) == sorted(last.items())


@in_compat
def test_second_version_reads_the_topic_from_its_start(stage: Stage) -> None:
    delays: dict[str, list[str]] = defaultdict(list)
    for flight in flights(FLIGHTS):
        delays[flight["carrier"]].append(flight["dep_delay"])
    expected = [
        (
            carrier,
            pytest.approx(mean(0 if value == "NA" else int(value) for value in values)),
            pytest.approx(mean(int(value) for value in values if value != "NA")),
        )
        for carrier, values in sorted(delays.items())
    ]
    assert reprocessing.run(stage) == expected


def test_files_have_every_flight_once_after_a_repeated_batch(stage: Stage) -> None:
    expected = [("before the crash", FLIGHTS, FLIGHTS), ("after the restart", FLIGHTS, FLIGHTS)]
    assert exactly_once_files.run(stage) == expected


@in_compat
def test_topic_has_every_flight_once_after_a_repeated_batch(stage: Stage) -> None:
    count = sum(int(flight["distance"]) >= 1000 for flight in flights(FLIGHTS))
    expected = [("before the crash", count, count), ("after the restart", count, count)]
    assert exactly_once_topics.run(stage) == expected


@in_compat
def test_state_in_rocksdb_continues_after_a_restart(stage: Stage) -> None:
    routes = [f"{flight['origin']} to {flight['dest']}" for flight in flights(FLIGHTS)]
    first, second = Counter(routes[: FLIGHTS // 2]), Counter(routes)
    ordered = sorted(second, key=lambda route: (-second[route], route))
    assert rocksdb_state.run(stage) == [(route, first[route], second[route]) for route in ordered]
    suffixes = {path.suffix for path in (stage.folder / "routes" / "state").rglob("*")}
    assert suffixes & {".zip", ".changelog"}
    assert ".delta" not in suffixes
