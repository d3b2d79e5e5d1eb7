"""A run's access to the files of replicas: damage behind the recovery point, and digests."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from log_batches import replicated_batch

from tidelog_chaos.drivers.log_damage import damage_log, read_checkpoint
from tidelog_chaos.runner import committed_digests, compare_replicas
from tidelog_chaos.skewed_clock import write_skew

BATCHES = [replicated_batch(offset, 0, b"value-%d" % offset) for offset in range(6)]
FIRST_SEGMENT, SECOND_SEGMENT = "00000000000000000000.log", "00000000000000000002.log"


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """A replica of ``orders-0`` with six records in two segments, of which four were flushed."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / FIRST_SEGMENT).write_bytes(b"".join(BATCHES[:2]))
    (folder / SECOND_SEGMENT).write_bytes(b"".join(BATCHES[2:]))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n0\n")
    return folder


@pytest.mark.parametrize("kind", ["truncate", "flip"])
@pytest.mark.parametrize("seed", range(10))
def test_log_damage_changes_only_what_is_behind_the_recovery_point(replica: Path, kind: str, seed: int) -> None:
    text = damage_log(replica.parent, kind, random.Random(seed))
    assert text is not None
    assert "orders-0" in text
    data = (replica / SECOND_SEGMENT).read_bytes()
    flushed = b"".join(BATCHES[2:4])
    assert data.startswith(flushed)
    assert data != b"".join(BATCHES[2:])
    assert (replica / FIRST_SEGMENT).read_bytes() == b"".join(BATCHES[:2])
    if kind == "flip":
        differing = [a ^ b for a, b in zip(data, b"".join(BATCHES[2:]), strict=True) if a != b]
        assert [value.bit_count() for value in differing] == [1]


def test_log_damage_loses_all_that_was_not_flushed_of_every_log(replica: Path) -> None:
    other = replica.with_name("orders-1")
    other.mkdir()
    (other / FIRST_SEGMENT).write_bytes(BATCHES[0])
    lost = sum(map(len, BATCHES[4:])) + len(BATCHES[0])
    text = damage_log(replica.parent, "lose", random.Random(1))
    assert text == f"{lost} bytes of 2 logs were not flushed and are lost"
    assert (replica / SECOND_SEGMENT).read_bytes() == b"".join(BATCHES[2:4])
    assert (other / FIRST_SEGMENT).read_bytes() == b""


def test_log_damage_does_nothing_where_all_was_flushed(replica: Path) -> None:
    (replica.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    assert damage_log(replica.parent, "truncate", random.Random(1)) is None


def test_checkpoint_that_is_not_there_has_no_offsets(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "recovery-point-offset-checkpoint") == {}


def test_replicas_have_equal_digests_however_they_are_cut_into_segments(replica: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / FIRST_SEGMENT).write_bytes(b"".join(BATCHES))
    digests = compare_replicas({"orders-0": {"node 1": replica, "node 2": other}}, {"orders-0": 6})["orders-0"]
    assert digests["node 1"] == digests["node 2"]
    assert [line.partition(":")[0] for line in digests["node 1"]] == [f"{n}-{n}" for n in range(6)]


def test_replicas_differ_where_one_lacks_or_has_another_batch_below_the_high_watermark(replica: Path) -> None:
    whole = committed_digests(replica, 6)
    assert committed_digests(replica, 3) == whole[:3]
    (replica / SECOND_SEGMENT).write_bytes(b"".join(BATCHES[2:4]))
    assert committed_digests(replica, 6) == whole[:4]
    (replica / SECOND_SEGMENT).write_bytes(b"".join([*BATCHES[2:5], replicated_batch(5, 1, b"another")]))
    changed = committed_digests(replica, 6)
    assert changed[:5] == whole[:5]
    assert changed[5] != whole[5]


def test_skewed_clock_moves_the_wall_clock_of_a_module_and_leaves_the_monotonic_one(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    write_skew(clock, 5_000_000)
    (tmp_path / "show_clocks.py").write_text(
        "import sys, time\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['an argument'], sys.argv\n"
        "for line in sys.stdin:\n"
        "    print(time.time(), time.time_ns(), time.monotonic(), flush=True)\n"
    )
    command = [sys.executable, "-m", "tidelog_chaos.skewed_clock", str(clock), "show_clocks", "an argument"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for skew_ms in (5_000_000, -5_000_000, 0):
            write_skew(clock, skew_ms)
            process.stdin.write("now\n")
            process.stdin.flush()
            wall_s, wall_ns, monotonic_s = process.stdout.readline().split()
            seen.append((float(wall_s), int(wall_ns) / 1e9, float(monotonic_s)))
        process.stdin.close()
    ahead, behind, right = seen
    assert ahead[0] - right[0] == pytest.approx(5_000, abs=5)
    assert behind[1] - right[1] == pytest.approx(-5_000, abs=5)
    assert right[2] - ahead[2] < 5


@pytest.mark.parametrize("skew_ms", [-300_000, 300_000])
def test_skewed_clock_leaves_the_deadlines_of_calls_as_they_are(tmp_path: Path, skew_ms: int) -> None:
    clock = tmp_path / "clock"
    write_skew(clock, skew_ms)
    (tmp_path / "call_nobody.py").write_text(
        "import asyncio, grpc, time\n"
        "async def call():\n"
        "    async with grpc.aio.insecure_channel('127.0.0.1:1') as channel:\n"
        "        await channel.unary_unary('/a/b')(b'', timeout=1, wait_for_ready=True)\n"
        "began = time.monotonic()\n"
        "try:\n"
        "    asyncio.run(call())\n"
        "except grpc.aio.AioRpcError as error:\n"
        "    print(error.code().name, time.monotonic() - began)\n"
    )
    command = [sys.executable, "-m", "tidelog_chaos.skewed_clock", str(clock), "call_nobody"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    name, seconds = done.stdout.split()
    assert name == "DEADLINE_EXCEEDED"
    assert 0.9 < float(seconds) < 10
