"""What a run of the benchmarks is asked for."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Options:
    """Passed to every benchmark's ``run``.

    ``quick`` asks for less data and fewer rounds: the shape of the figures, not the figures. ``say`` takes what the
    benchmark is about to do, for whoever watches.
    """

    quick: bool = False
    say: Callable[[str], None] = _silent

    def pick(self, full: T, quick: T) -> T:
        """Return the amount for this run."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty directory that is removed afterwards; it lies where the system keeps temporary files."""
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            yield Path(directory)
