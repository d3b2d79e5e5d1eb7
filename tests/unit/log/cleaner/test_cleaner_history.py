"""Random histories: whatever was written, cleaned, restarted and when, a consumer sees what it has to see."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from cleaned_log import DIRECTORY, CleanedLog
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import environment_number

from tidelog_foundation.records import CODECS
from tidelog_foundation.records.control import ControlType

Step = tuple[Any, ...]

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e"])
VALUES = st.sampled_from([b"", b"v", b"w" * 40, b"x" * 200])
PAIRS = st.lists(
    st.tuples(KEYS, VALUES) | st.tuples(KEYS, st.none()) | st.tuples(st.none(), VALUES), min_size=1, max_size=4
)
PRODUCERS = st.sampled_from([5, 6])
STEPS = st.one_of(
    st.tuples(st.just("append"), PAIRS, st.sampled_from(CODECS)),
    st.tuples(st.just("append"), PAIRS, st.just("none")),
    st.tuples(st.just("transact"), PAIRS, PRODUCERS),
    st.tuples(st.just("end"), PRODUCERS, st.sampled_from(list(ControlType))),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([1, 2, 4, 1000])),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1000, 5000])),
    st.tuples(st.just("crash"), st.integers(0, 9)),
)
EXAMPLES = environment_number("TIDELOG_SIM_SEEDS") or examples(60)


def take(log: CleanedLog, step: Step) -> None:
    match step:
        case ("append", pairs, codec):
            log.append(pairs, compression=codec)
        case ("transact", pairs, producer_id):
            log.append(pairs, producer_id=producer_id)
        case ("end", producer_id, kind):
            if producer_id in log.open_transactions:
                log.end_transaction(producer_id, kind)
        case ("roll",):
            log.log.roll(log.now_ms)
        case ("clean", max_keys):
            log.clean(max_keys)
            log.check()
        case ("wait", milliseconds):
            log.now_ms += milliseconds
        case ("crash", seed):
            log.log.flush()
            log.crash(random.Random(seed))
            log.check()


def play(steps: Sequence[Step]) -> CleanedLog:
    """Take the steps, then end what is open and clean until all is clean and all tombstones' time is over."""
    log = CleanedLog()
    for step in steps:
        take(log, step)
    for producer_id in sorted(log.open_transactions):
        log.end_transaction(producer_id, ControlType.ABORT)
    for _ in range(3):
        log.log.roll(log.now_ms)
        while log.clean() is not None:
            log.check()
        log.now_ms += 1000
        log.append([(b"last", b"1")])
    return log


@pytest.mark.sim
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=50))
def test_cleaned_log_shows_each_keys_last_committed_record(steps: list[Step]) -> None:
    log = play(steps)
    log.check()
    tombstones = [record for record in log.visible() if record.value is None]
    assert tombstones == [], "their time was over at the last cleaning"


@pytest.mark.sim
@settings(max_examples=examples(max(20, EXAMPLES // 10)), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=40))
def test_engines_leave_equal_bytes(steps: list[Step]) -> None:
    outcomes = []
    for name in ("_pure", "_fast"):
        with pytest.MonkeyPatch.context() as patch:
            chosen = engine_of(name)
            for user in ("batch_filter", "job", "log_cleaner"):
                patch.setattr(importlib.import_module(f"tidelog_node.log.cleaner.{user}"), "engine", chosen)
            disk = play(steps).disk
        outcomes.append({path: disk.read_bytes(path) for path in disk.paths() if path.parent == DIRECTORY})
    assert outcomes[0] == outcomes[1]


def test_aborted_records_stay_hidden_after_two_crashes() -> None:
    for seed in range(20):
        log = CleanedLog()
        log.append([(b"a", b"1")])
        log.append([(b"b", b"aborted")], producer_id=6)
        log.end_transaction(6, ControlType.ABORT)
        log.append([(b"d", b"1")])
        take(log, ("crash", seed))
        log.log.roll(log.now_ms)
        take(log, ("crash", seed + 3))


def engine_of(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tidelog_node.log.cleaner.{name}")
    except ImportError:
        pytest.skip("the compiled engine is not built")
