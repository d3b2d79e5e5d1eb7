"""Options that are durations: ``90s``, ``5m``, ``1.5h``, and where a bare number was always taken, seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import typer

from tidelog_cli.output.times import parse_duration_ms


def duration_ms(text: str, option: str, least_ms: int = 0) -> int:
    """Return the milliseconds of a duration.

    Raises:
        typer.BadParameter: it is not a duration, or shorter than ``least_ms``.
    """
    try:
        found_ms = parse_duration_ms(text.strip())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    if found_ms < least_ms:
        raise typer.BadParameter(f'"{text}" is shorter than {least_ms} ms', param_hint=option)
    return found_ms


def seconds(least_s: float = 0) -> Callable[[str], float]:
    """Return the parser of an option that takes ``5``, ``0.5`` or a duration with a unit, in seconds.

    It raises typer.BadParameter for all else, and for times below ``least_s``.
    """

    def parse(text: str) -> float:
        try:
            found_s = float(text)
        except ValueError:
            try:
                found_s = parse_duration_ms(text) / 1000
            except ValueError:
                raise typer.BadParameter(f'"{text}" is not a number of seconds, nor a duration such as 90s') from None
        if not least_s <= found_s < math.inf:
            raise typer.BadParameter(f'"{text}" is not a time of {least_s:g} s or more')
        return found_s

    return parse
