"""Random numbers of simulations and tests: functions of a seed that can be copied with their state."""

from __future__ import annotations

from dataclasses import dataclass

_MASK = 0xFFFFFFFF


def mix(*numbers: int) -> int:
    """Return 32 well-mixed bits of some numbers."""
    x = 0x9E3779B9
    for number in numbers:
        x = ((x ^ number) * 0x85EBCA6B) & _MASK
        x ^= x >> 13
        x = (x * 0xC2B2AE35) & _MASK
        x ^= x >> 16
    return x


@dataclass(slots=True)
class SeededNumbers:
    """A sequence of numbers of its own for each replica of each seed; ``draws`` counts them."""

    seed: int
    node_id: int
    draws: int = 0

    def randrange(self, start: int, stop: int, /) -> int:
        self.draws += 1
        return start + mix(self.seed, self.node_id, self.draws, 1) % max(1, stop - start)


@dataclass(frozen=True, slots=True)
class LowestNumbers:
    """The lowest number of each range, plus ``offset``."""

    offset: int = 0

    def randrange(self, start: int, _stop: int, /) -> int:
        return start + self.offset
