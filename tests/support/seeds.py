"""The seeds of seeded tests: a few fixed ones in every test run, many with ``make sim``, one to repeat a failure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def environment_number(name: str) -> int | None:
    """Return the number in an environment variable, or None if it is unset or empty."""
    text = os.environ.get(name, "")
    return int(text) if text else None


def seeds(default: int, cost: int = 1) -> range:
    """Return the seeds of this run.

    They are those below ``default``, or below TIDELOG_SIM_SEEDS if set, or TIDELOG_SIM_SEED alone. A test whose seeds
    are ``cost`` times as expensive gets that many times fewer of them, but at least one.
    """
    only = environment_number("TIDELOG_SIM_SEED")
    if only is not None:
        return range(only, only + 1)
    count = environment_number("TIDELOG_SIM_SEEDS")
    return range(default if count is None else max(1, count // cost))


def seed_blocks(default: int, size: int) -> list[range]:
    """Return the seeds of this run in blocks of ``size``, so that one test case runs many short simulations."""
    every = seeds(default)
    return [every[first : first + size] for first in range(0, len(every), size)]


@contextlib.contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Add the seed and the command that repeats it to a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed} failed; once more: make sim SIM=tests SEED={seed} ARGS='-k {_running_test()}'")
        raise


def _running_test() -> str:
    test_id = os.environ.get("PYTEST_CURRENT_TEST", "")
    return test_id.rpartition("::")[2].split(" ")[0].split("[")[0]
