"""The standard library's ``dataclass``, whose methods and fields are generated at their first use.

A storage node has more than a thousand dataclasses, and an idle one uses few of them. To generate all of it at import
takes most of the time in which a node starts, and a quarter of its memory.
"""

from __future__ import annotations

import dataclasses
import sys
from abc import update_abstractmethods
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog_foundation.dataclass.fields import (
    DECLARATION,
    DEFERRED,
    FIELDS,
    Declaration,
    DeferredFields,
    declaration_of,
)
from tidelog_foundation.dataclass.methods import ORDER, DeferredMethod

_T = TypeVar("_T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *,
        init: bool = True,
        eq: bool = True,
        order: bool = False,
        frozen: bool = False,
        kw_only: bool = False,
        slots: bool = False,
    ) -> Callable[[type[_T]], type[_T]]:
        """Return a decorator with the meaning of `dataclasses.dataclass`.

        The methods and the fields of a class are those that the standard library generates. ``InitVar`` is not
        supported. Annotations have ``ClassVar`` and ``KW_ONLY`` by these names. A method of a class with slots cannot
        use ``super()`` without arguments, as with the standard library up to Python 3.13.

        Raises:
            ValueError: ``order`` without ``eq``, or a default that can change.
            TypeError: A class defines a method that ``order`` or ``frozen`` adds, or, at its first use, has a field of
                type ``InitVar`` or a field without a default behind one that has a default.
        """
        if order and not eq:
            raise ValueError("eq must be true if order is true")

        def decorate(cls: type[_T]) -> type[_T]:
            names = _generated(cls, init=init, eq=eq, order=order, frozen=frozen)
            if cls.__doc__ is None:
                # The standard library would take the signature, which generates the methods.
                cls.__doc__ = cls.__name__
            declaration = declaration_of(cls, frozen=frozen, kw_only=kw_only, slots=slots)
            if declaration is None:
                made = _declared_at_once(cls, frozen=frozen, kw_only=kw_only, slots=slots)
            else:
                made = _declared(cls, declaration, slots=slots)
            for name in names:
                setattr(made, name, DeferredMethod(made, name, frozen=frozen, slots=slots))
            if eq and not frozen and not _has_own_hash(made):
                made.__hash__ = None
            # The standard library has done it before these methods were there.
            return update_abstractmethods(made)

        return decorate


def _declared(cls: type[_T], declaration: Declaration, *, slots: bool) -> type[_T]:
    """Return a dataclass whose fields are generated at their first use."""
    if declaration.frozen:
        _freeze(cls, slots=slots)
    made: type[_T] = cls
    if slots:
        made = _with_slots(cls, declaration.names())
    else:
        for name, default in declaration.defaults.items():
            if not isinstance(default, dataclasses.Field):
                continue
            if default.default is not dataclasses.MISSING:
                setattr(cls, name, default.default)
            elif name in cls.__dict__:
                delattr(cls, name)
    setattr(made, DECLARATION, declaration)
    if sys.version_info >= (3, 13) and "__replace__" not in made.__dict__:
        made.__replace__ = _replace  # type: ignore[attr-defined]
    for name in DEFERRED:
        if name not in made.__dict__:
            setattr(made, name, DeferredFields(made, name, declaration))
    return made


def _with_slots(cls: type[_T], names: dict[str, None]) -> type[_T]:
    """Return a class with a slot for each field that has none in a base."""
    taken: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = base.__dict__.get("__slots__", ())
        taken.update((slots,) if isinstance(slots, str) else slots)
    namespace = {name: value for name, value in cls.__dict__.items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple(name for name in names if name not in taken)
    metaclass: Any = type(cls)
    made: type[_T] = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _declared_at_once(cls: type[_T], *, frozen: bool, kw_only: bool, slots: bool) -> type[_T]:
    """Return a dataclass whose fields the standard library generates now."""
    # Below another dataclass, the standard library freezes the class, and checks that the other is frozen.
    is_derived = any(FIELDS in base.__dict__ for base in cls.__mro__[1:])
    if frozen and not is_derived:
        _freeze(cls, slots=slots)
    made = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=frozen and is_derived, kw_only=kw_only, slots=slots
    )(cls)
    made.__dataclass_params__.frozen = frozen  # type: ignore[attr-defined]
    return made


def _generated(cls: type, *, init: bool, eq: bool, order: bool, frozen: bool) -> list[str]:
    """Return the names of the methods to generate: a class keeps those of its own."""
    own = next((name for name in ORDER if order and name in cls.__dict__), None)
    if own is not None:
        raise TypeError(f"{cls.__qualname__} has order=True and defines {own}")
    names = ["__repr__", *(["__init__"] if init else []), *(["__eq__"] if eq else [])]
    generated = [name for name in names if name not in cls.__dict__] + list(ORDER if order else ())
    if eq and frozen and not _has_own_hash(cls):
        generated.append("__hash__")
    return generated


def _has_own_hash(cls: type) -> bool:
    """Return whether a class defines ``__hash__``. Python itself sets it to None beside a definition of ``__eq__``."""
    own = cls.__dict__
    return "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)


def _freeze(cls: type, *, slots: bool) -> None:
    """Add the methods of frozen classes, which are the same for all."""
    methods: dict[str, Any] = {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
        elif name.endswith("attr__"):
            raise TypeError(f"{cls.__qualname__} is frozen and defines {name}")


def _replace(self: Any, /, **changes: object) -> Any:
    """Return a copy with other values in some fields, as ``copy.replace`` does from Python 3.13 on."""
    return dataclasses.replace(self, **changes)


def _is_frozen(instance: object, name: str) -> bool:
    """Return whether a class has a field of that name, or is a dataclass itself and no further class below one."""
    cls: Any = type(instance)
    return FIELDS in cls.__dict__ or name in cls.__dataclass_fields__


def _refuse_assignment(self: object, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: object, name: str) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[object]:
    """Return the values of the fields, as pickle and copy take them."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
