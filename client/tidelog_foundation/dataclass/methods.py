"""The methods of a dataclass, each generated when it is looked up for the first time."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from tidelog_foundation.dataclass.fields import fields_of, new_class_like

ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


class DeferredMethod:
    """A method of a class that is generated when it is looked up for the first time, in two threads twice the same."""

    __slots__ = ("_frozen", "_name", "_owner", "_slots")

    def __init__(self, owner: type, name: str, *, frozen: bool, slots: bool) -> None:
        self._owner = owner
        self._name = name
        self._frozen = frozen
        self._slots = slots

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._owner.__dict__[self._name] is self:
            setattr(self._owner, self._name, self._generate())
        return self._owner.__dict__[self._name].__get__(instance, owner)

    def _generate(self) -> object:
        name = self._name
        fields = fields_of(self._owner)
        if name == "__init__":
            method = _init_of(self._owner, fields, frozen=self._frozen, slots=self._slots)
            if method is not None:
                return method
        body: dict[str, Any] = {"__annotations__": {key: annotation for key, (annotation, _) in fields.items()}}
        body |= {key: field for key, (_, field) in fields.items()}
        # Except for __init__, which raises its error here, the methods of frozen classes and of those with slots are
        # those of any class.
        decorate = dataclasses.dataclass(
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name not in ("__init__", "__repr__"),
            order=name in ORDER,
            unsafe_hash=name == "__hash__",
            match_args=False,
        )
        twin: type = decorate(new_class_like(self._owner, body))
        return twin.__dict__[name]


def _init_of(cls: type, fields: dict[str, tuple[Any, Any]], *, frozen: bool, slots: bool) -> Any:
    """Return the ``__init__`` of a class, as the standard library would generate it, in less time.

    Return None where the standard library has to report an error.
    """
    itself = "__dataclass_self__" if "self" in fields else "self"
    values: dict[str, Any] = {"__dataclass_set__": object.__setattr__, "__dataclass_factory__": _FACTORY}
    positional: list[str] = [itself]
    named: list[str] = []
    body: list[str] = []
    has_default = False
    for name, (_, field) in fields.items():
        parameter, value = name, name
        if field.default_factory is not dataclasses.MISSING:
            values[f"__dataclass_make_{name}__"] = field.default_factory
            parameter, value = f"{name}=__dataclass_factory__", f"__dataclass_make_{name}__()"
            if field.init:
                value = f"{value} if {name} is __dataclass_factory__ else {name}"
        elif field.default is not dataclasses.MISSING:
            values[f"__dataclass_default_{name}__"] = field.default
            parameter = f"{name}=__dataclass_default_{name}__"
            value = name if field.init else f"__dataclass_default_{name}__"
            if not field.init and not slots:
                # The class has the default itself.
                continue
        elif not field.init:
            continue
        elif not field.kw_only and has_default:
            return None
        if field.init:
            (named if field.kw_only else positional).append(parameter)
            has_default = has_default or (not field.kw_only and parameter != name)
        body.append(f"__dataclass_set__({itself}, {name!r}, {value})" if frozen else f"{itself}.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(f"{itself}.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    lines = [f"def make({', '.join(values)}):", f" def __init__({parameters}):"]
    lines += [f"  {line}" for line in body or ["pass"]] + [" return __init__"]
    made: dict[str, Any] = {}
    exec("\n".join(lines), sys.modules[cls.__module__].__dict__ if cls.__module__ in sys.modules else {}, made)
    method = made["make"](**values)
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    order = [each.partition("=")[0] for each in (*positional[1:], *named)]
    method.__annotations__ = {name: fields[name][0] for name in order} | {"return": None}
    return method


class _Factory:
    """The default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
