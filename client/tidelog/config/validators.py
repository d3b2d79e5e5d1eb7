"""Checks that a setting's value is within its limits. Each raises ValueError with the limit in its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Validator = Callable[[Any], object]


def at_least(minimum: float) -> Validator:
    """Refuse numbers below ``minimum``."""

    def check(value: float) -> None:
        if value < minimum:
            raise ValueError(f"must be at least {minimum}")

    return check


def between(minimum: float, maximum: float) -> Validator:
    """Refuse numbers below ``minimum`` or above ``maximum``."""

    def check(value: float) -> None:
        if not minimum <= value <= maximum:
            raise ValueError(f"must be from {minimum} to {maximum}")

    return check


def one_of(*choices: str) -> Validator:
    """Refuse words that are not among ``choices``."""

    def check(value: str) -> None:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")

    return check


def not_empty(value: Any) -> None:
    """Refuse an empty string or list."""
    if not value:
        raise ValueError("must not be empty")
