"""Command options as dataclasses, for commands with more options than a function should have parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command with the fields of the dataclass, which become options.

    Declare a field like a parameter of a command: ``Annotated[type, typer.Option(...)]``, and its default. The command
    is called with the dataclasses built from the options. Two groups must not have a field of the same name.
    """
    own = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, type] = {name: p.annotation for name, p in own.items() if _is_group(p.annotation)}
    fields = {name: _fields_of(group) for name, group in groups.items()}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields[name]}) for name, group in groups.items()}
        command(**made, **given)

    parameters = [p for name, own_p in own.items() for p in fields.get(name, [own_p])]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(keywords, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _fields_of(group: type) -> list[inspect.Parameter]:
    return list(inspect.signature(group, eval_str=True).parameters.values())
