"""The report of a violated Raft property in a simulation."""

from __future__ import annotations


class PropertyViolatedError(AssertionError):
    """A violated property. ``name`` is the property's name, such as ``ElectionSafety`` of the paper's figure 3."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail

    def __reduce__(self) -> tuple[type[PropertyViolatedError], tuple[str, str]]:
        return type(self), (self.name, self.detail)


def require(condition: bool, name: str, detail: str = "") -> None:
    """Raise an error unless the property holds."""
    if not condition:
        raise PropertyViolatedError(name, detail)
