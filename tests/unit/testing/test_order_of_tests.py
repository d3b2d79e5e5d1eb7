"""The order of tests: long ones begin each worker's run, and one worker has all Spark tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from long_first import Needs, long_first, turned

SPARK = [Needs("spark", is_long=True, spark=True)] * 3
SLOW = [Needs(f"slow {number}", is_long=number % 2 == 0) for number in (0, 0, 2, 2, 4)]
SHORT = [Needs(f"short {number // 3}") for number in range(40)]
TESTS = [*SHORT[:20], *SLOW, *SHORT[20:], *SPARK, Needs("spark")]


def runs(workers: int, tests: Sequence[Needs]) -> list[list[tuple[int, Needs]]]:
    """Number the tests and cut as the scheduler does: who comes next gets an equal share of what is left."""
    left, found = long_first([*enumerate(tests)], lambda pair: pair[1], workers), []
    for following in range(workers, 0, -1):
        size = len(left) // following
        found.append(left[:size])
        left = left[size:]
    return found


def test_order_has_spark_with_its_file_first_and_files_with_long_tests_first_elsewhere() -> None:
    first, second, third = [[need for _, need in run] for run in runs(3, TESTS)]
    assert first[:4] == [*SPARK, Needs("spark")]
    assert second[:2] == SLOW[2:4]
    assert third[:3] == [*SLOW[:2], SLOW[4]]
    assert not any(need.is_long for run in (first[4:], second[2:], third[3:]) for need in run)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("tests", [[], SPARK, SLOW, SHORT, TESTS], ids=["none", "spark", "slow", "short", "all"])
def test_order_has_every_test_once_and_those_of_a_file_as_they_stand_in_it(workers: int, tests: list[Needs]) -> None:
    found = runs(workers, tests)
    assert sorted(number for run in found for number, _ in run) == [*range(len(tests))]
    for run in found:
        for file in {need.file for _, need in run}:
            own = [number for number, need in run if need.file == file]
            assert own == sorted(own)


@pytest.mark.parametrize("found", [[], [1], [1, 2, 3, 4, 5, 6, 7]], ids=len)
def test_workers_begin_a_folder_at_places_that_lie_apart(found: list[int]) -> None:
    orders = [turned(found, worker, 3) for worker in range(3)]
    assert all(sorted(order) == found for order in orders)
    assert len({order[0] for order in orders if order}) == min(3, len(found))
