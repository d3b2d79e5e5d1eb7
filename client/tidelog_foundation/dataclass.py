"""The standard library's ``dataclass``, whose methods are generated at their first use.

A storage node has more than a thousand dataclasses, and an idle one uses few of them. To generate all methods at import
takes most of the time in which a node starts, and a quarter of its memory.
"""

from __future__ import annotations

import dataclasses
from abc import update_abstractmethods
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from types import new_class
from typing import TYPE_CHECKING, Any, TypeVar

_T = TypeVar("_T")
_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")

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

        The methods of a class are those that the standard library generates. ``InitVar`` is not supported.

        Raises:
            ValueError: ``order`` without ``eq``.
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
            # Below another dataclass, the standard library freezes the class, and checks that the other is frozen.
            is_derived = any("__dataclass_fields__" in base.__dict__ for base in cls.__mro__[1:])
            if frozen and not is_derived:
                _freeze(cls, slots=slots)
            made = dataclasses.dataclass(
                init=False, repr=False, eq=False, frozen=frozen and is_derived, kw_only=kw_only, slots=slots
            )(cls)
            made.__dataclass_params__.frozen = frozen
            for name in names:
                setattr(made, name, _Deferred(made, name, frozen=frozen, slots=slots))
            if eq and not frozen and not _has_own_hash(made):
                made.__hash__ = None
            # The standard library has done it before these methods were there.
            return update_abstractmethods(made)

        return decorate


class _Deferred:
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
        compares = name not in ("__init__", "__repr__")
        decorate = dataclasses.dataclass(
            init=name == "__init__",
            repr=name == "__repr__",
            eq=compares,
            order=name in _ORDER,
            unsafe_hash=name == "__hash__",
            # The other methods of a frozen class are those of any class.
            frozen=self._frozen and name == "__init__",
            match_args=False,
            # Only of a class with slots, ``__init__`` sets a field that is no parameter.
            slots=self._slots and any(not field.init for field in dataclasses.fields(self._owner)),
        )
        twin: type = decorate(_without_methods(self._owner))
        return twin.__dict__[name]


def _generated(cls: type, *, init: bool, eq: bool, order: bool, frozen: bool) -> list[str]:
    """Return the names of the methods to generate: a class keeps those of its own."""
    own = next((name for name in _ORDER if order and name in cls.__dict__), None)
    if own is not None:
        raise TypeError(f"{cls.__qualname__} has order=True and defines {own}")
    names = ["__repr__", *(["__init__"] if init else []), *(["__eq__"] if eq else [])]
    generated = [name for name in names if name not in cls.__dict__] + list(_ORDER if order else ())
    if eq and frozen and not _has_own_hash(cls):
        generated.append("__hash__")
    return generated


def _has_own_hash(cls: type) -> bool:
    """Return whether a class defines ``__hash__``. Python itself sets it to None beside a definition of ``__eq__``."""
    own = cls.__dict__
    return "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)


def _without_methods(cls: type) -> type:
    """Return a class with the fields of ``cls``, its bases' included, from which its methods are generated."""
    declared = dataclasses.fields(cls)
    names = {field.name for field in declared}
    for name, field in cls.__dataclass_fields__.items():  # type: ignore[attr-defined]
        if name not in names and "InitVar" in str(field.type):
            raise TypeError(f"{cls.__qualname__}.{name}: a dataclass of Tidelog has no InitVar")
    body: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__annotations__": {field.name: field.type for field in declared},
    }
    body.update((field.name, _copy(field)) for field in declared)
    if hasattr(cls, "__post_init__"):
        body["__post_init__"] = cls.__post_init__
    return new_class(cls.__name__, (), {}, lambda namespace: namespace.update(body))


def _copy(field: dataclasses.Field[Any]) -> Any:
    names = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    arguments: dict[str, Any] = {name: getattr(field, name) for name in names}
    return dataclasses.field(**arguments)


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


def _is_frozen(instance: object, name: str) -> bool:
    """Return whether a class has a field of that name, or is a dataclass itself and no further class below one."""
    cls: Any = type(instance)
    return "__dataclass_fields__" in cls.__dict__ or name in cls.__dataclass_fields__


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
