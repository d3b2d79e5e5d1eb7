"""The options of a benchmark run."""

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
    """The options, passed to every benchmark's ``run``.

    ``quick`` requests less data and fewer rounds, for rough figures. ``say`` reports the benchmark's progress.
    """

    quick: bool = False
    say: Callable[[str], None] = _silent

    def pick(self, full: T, quick: T) -> T:
        """Return the amount for this run."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty directory among the system's temporary files, and remove it afterwards."""
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            yield Path(directory)
