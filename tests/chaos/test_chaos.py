"""Real processes are killed and paused under load, round after round; in the end nothing acknowledged may be missing.

A round is one fault, its healing, and a bounded wait for whole ISRs. A reader follows all the time: what it has seen
must never change. At the end the logs of all replicas must be equal, byte by byte.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acknowledged import Load, assert_all_stored, assert_order_of_keys, create_topic, wait_for
from faults import Faults
from replica_files import assert_replicas_equal
from rich.console import Console
from rich.table import Table
from seeds import environment_number
from topic_reader import TopicReader

from tidelog import AdminClient, Consumer, KafkaException, TopicPartition
from tidelog.testing import LocalCluster

TOPIC = "orders"
PARTITIONS = 4
HEALED_S = 60.0
DEFAULT_ROUNDS, DEFAULT_SEED = 2, 97

Print = Callable[..., None]


@pytest.mark.chaos
def test_nothing_acknowledged_is_lost_whatever_happens_to_the_processes(tmp_path: Path, show: Print) -> None:
    asked = environment_number("TIDELOG_CHAOS_ROUNDS")
    rounds = DEFAULT_ROUNDS if asked is None else asked
    known = environment_number("TIDELOG_CHAOS_SEED")
    seed = known if known is not None else DEFAULT_SEED if asked is None else random.randrange(10_000)
    show(f"{rounds} rounds of seed {seed}")
    with explained(seed, rounds, tmp_path), LocalCluster(3, 3, data_dir=tmp_path) as cluster:
        create_topic(cluster, TOPIC, PARTITIONS, 3, min_insync_replicas="2", segment_bytes=str(1 << 20))
        load = Load(cluster.bootstrap_servers, TOPIC, keys=31, producers=3, records_per_s=2_000, value_size=200)
        with TopicReader(load, PARTITIONS) as reader:
            with load:
                Chaos(cluster, load, reader, random.Random(seed), show).run(rounds)
            check_end(cluster, load, reader, show)
    shutil.rmtree(tmp_path)


class Chaos:
    """Round after round of faults, each of them once before any comes again."""

    def __init__(
        self, cluster: LocalCluster, load: Load, reader: TopicReader, dice: random.Random, show: Print
    ) -> None:
        self._cluster = cluster
        self._load = load
        self._reader = reader
        self._dice = dice
        self._show = show
        self._faults = Faults(cluster, load, PARTITIONS, dice)

    def run(self, rounds: int) -> None:
        """Run so many rounds."""
        self._load.wait_for_progress(1_000)
        self._show(row("", "fault", "writable s", "healed s", "acknowledged"))
        upcoming: list[Callable[[], str]] = []
        for number in range(1, rounds + 1):
            upcoming = upcoming or self._dice.sample(self._faults.all, len(self._faults.all))
            self._round(number, upcoming.pop())

    def _round(self, number: int, fault: Callable[[], str]) -> None:
        done = fault()
        started_s = time.monotonic()
        self._wait_writable(done)
        writable_s = time.monotonic() - started_s
        self._load.wait_for_progress(self._dice.randint(1, 1_000))
        started_s = time.monotonic()
        self._faults.heal()
        wait_whole(self._cluster, f"after: {done}")
        healed_s = time.monotonic() - started_s
        self._read_something_again()
        acknowledged = f"{len(self._load.acknowledged):,}"
        self._show(row(str(number), done, f"{writable_s:.1f}", f"{healed_s:.1f}", acknowledged))

    def _wait_writable(self, done: str) -> None:
        sent = self._load.sent

        def is_writable() -> bool:
            assert not self._load.failed, self._load.failed[:5]
            return all(self._load.newest.get(p, -1) >= sent for p in range(PARTITIONS))

        wait_for(is_writable, f"every partition is writable after: {done}", HEALED_S)

    def _read_something_again(self) -> None:
        acknowledged = {p: self._load.acknowledged[n][1] for p, n in dict(self._load.newest).items()}
        self._reader.wait_until_read(acknowledged)
        partition = self._dice.randrange(PARTITIONS)
        length = len(self._reader.numbers[partition])
        self._reader.read_again(partition, self._dice.randrange(max(0, length - 5_000), length))


def check_end(cluster: LocalCluster, load: Load, reader: TopicReader, show: Print) -> None:
    """After the load: everything acknowledged is read, by the old reader and by a new one, and the replicas agree."""
    assert not load.failed, load.failed[:5]
    assert len(load.acknowledged) == load.sent
    wait_whole(cluster, "after the load")
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        with TopicReader(load, PARTITIONS) as newcomer:
            wait_for(lambda: newcomer.has_read(high_watermarks(consumer)), "a new reader is at the end")
        wait_for(lambda: reader.has_read(high_watermarks(consumer)), "the reader is at the end")
        ends = high_watermarks(consumer)
    seen, stored = reader.stored, newcomer.stored
    changed = [(place, n, stored.get(place)) for place, n in seen.items() if stored.get(place) != n]
    assert not changed, f"{len(changed)} records changed after they were read, e.g. (place, was, is) {changed[:5]}"
    assert len(seen) == len(stored)
    assert_all_stored(load, stored)
    assert_order_of_keys(load, stored)
    for node in cluster.nodes.values():
        node.terminate()
    assert [node.wait_or_kill(20) for node in cluster.nodes.values()] == [0, 0, 0]
    assert_replicas_equal(cluster, TOPIC, ends)
    show(f"{load.sent:,} acknowledged, {sum(ends) - load.sent:,} stored twice, none lost; all replicas are equal")


def high_watermarks(consumer: Consumer) -> list[int]:
    """Return the high watermark of each partition."""
    return [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=20)[1] for p in range(PARTITIONS)]


def wait_whole(cluster: LocalCluster, when: str) -> None:
    """Wait until every process serves, and every partition has a leader and all of its replicas in sync."""
    # First, because a node that was paused knows nothing yet of the ISRs that it has left.
    cluster.wait_ready(HEALED_S)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        wait_for(lambda: is_whole(admin), f"every ISR is whole {when}", HEALED_S)


def is_whole(admin: AdminClient) -> bool:
    """Return whether every partition has a leader and all of its replicas in sync."""
    try:
        partitions = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    except KafkaException:
        return False
    return all(p.leader >= 0 and len(p.isrs) == 3 for p in partitions.values())


def row(*cells: str) -> Table:
    """Return one line of the table of rounds."""
    table = Table.grid(padding=(0, 2))
    for width, justify in ((3, "right"), (52, "left"), (10, "right"), (8, "right"), (12, "right")):
        table.add_column(width=width, justify=justify)  # type: ignore[arg-type]
    table.add_row(*cells)
    return table


@contextlib.contextmanager
def explained(seed: int, rounds: int, data_dir: Path) -> Iterator[None]:
    """Add to a failure how to repeat it and where the data is."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed} failed; once more: make chaos SEED={seed} ROUNDS={rounds}; data: {data_dir}")
        raise


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Print:
    """Print at once with ``make chaos``, else only when the test fails; what the clients log stays out in any case."""
    is_long = environment_number("TIDELOG_CHAOS_ROUNDS") is not None

    def print_now(what: object) -> None:
        with capsys.disabled() if is_long else contextlib.nullcontext():
            Console(width=100, highlight=False).print(what)

    if is_long:
        print_now("")
    return print_now
