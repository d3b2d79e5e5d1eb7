"""The result of a benchmark: a figure, its comparison, and its bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Row = dict[str, str | float | bool | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit, inclusive, on a result's ratio or value."""

    limit: float
    direction: Literal["at least", "at most"]
    of: Literal["ratio", "value"]

    @classmethod
    def on_ratio(cls, *, at_least: float) -> Bar:
        """Return the bar of a figure that must be at least this many times its reference."""
        return cls(at_least, "at least", "ratio")

    @classmethod
    def on_value(cls, *, at_least: float | None = None, at_most: float | None = None) -> Bar:
        """Return the bar of a figure by itself, in its own unit. One of the two limits is given."""
        if at_most is not None:
            return cls(at_most, "at most", "value")
        assert at_least is not None
        return cls(at_least, "at least", "value")


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table.

    ``ratio`` states how many times better the figure is than ``compared_with``: above 1 is better, whatever the unit.
    """

    name: str
    value: float
    unit: str
    compared_with: str | None = None
    ratio: float | None = None
    bar: Bar | None = None

    @property
    def holds(self) -> bool | None:
        """True if the bar is met; None without a bar."""
        if self.bar is None:
            return None
        measured = self.ratio if self.bar.of == "ratio" else self.value
        assert measured is not None, f"{self.name} has a bar on a ratio and no ratio"
        return measured >= self.bar.limit if self.bar.direction == "at least" else measured <= self.bar.limit

    @property
    def bar_text(self) -> str | None:
        """The bar in words, such as ``at least 0.6 x`` or ``at most 50 ms``."""
        if self.bar is None:
            return None
        return f"{self.bar.direction} {self.bar.limit:g} {'x' if self.bar.of == 'ratio' else self.unit}"

    def row(self) -> Row:
        """Return the result as it is written to ``results/latest.json``."""
        return {
            "name": self.name,
            "value": float(f"{self.value:.4g}"),
            "unit": self.unit,
            "compared_with": self.compared_with,
            "ratio": None if self.ratio is None else float(f"{self.ratio:.3g}"),
            "bar": self.bar_text,
            "holds": self.holds,
        }
