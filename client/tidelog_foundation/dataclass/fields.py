"""The fields of a dataclass, as it declares them and as the standard library has them."""

from __future__ import annotations

import dataclasses
import inspect
from types import MemberDescriptorType, new_class
from typing import Any

FIELDS = "__dataclass_fields__"
"""The name of the attribute that makes a class a dataclass."""
DEFERRED = (FIELDS, "__dataclass_params__", "__match_args__")
"""The names of the attributes that are derived from the fields."""
DECLARATION = "__dataclass_declaration__"
_SPECIAL_ANNOTATIONS = ("ClassVar", "InitVar", "KW_ONLY")
"""Parts of annotations that the standard library has to look at."""


class Declaration:
    """The fields that a class declares itself. ``bases`` are the declarations of all its bases, the last one first."""

    __slots__ = ("annotations", "bases", "defaults", "frozen", "kw_only")

    def __init__(
        self,
        annotations: dict[str, str],
        defaults: dict[str, Any],
        bases: list[Declaration],
        *,
        frozen: bool,
        kw_only: bool,
    ) -> None:
        self.annotations = annotations
        self.defaults = defaults
        self.bases = bases
        self.frozen = frozen
        self.kw_only = kw_only

    def names(self) -> dict[str, None]:
        """Return the names of all fields in their order."""
        return dict.fromkeys(name for each in (*self.bases, self) for name in each.annotations)

    def fields(self) -> dict[str, tuple[str, Any]]:
        """Return the type and a new ``Field`` of each field, the bases' included, without metadata."""
        return {
            name: (annotation, each._field(name))
            for each in (*self.bases, self)
            for name, annotation in each.annotations.items()
        }

    def _field(self, name: str) -> Any:
        default = self.defaults.get(name, dataclasses.MISSING)
        if not isinstance(default, dataclasses.Field):
            return dataclasses.field(default=default, kw_only=self.kw_only)
        copied = _copy(default)
        if copied.kw_only is dataclasses.MISSING:
            copied.kw_only = self.kw_only
        return copied


class DeferredFields:
    """One of the attributes ``DEFERRED``. All are generated when one is looked up for the first time.

    Two threads may generate them twice, with fields that are equal.
    """

    __slots__ = ("_declaration", "_name", "_owner")

    def __init__(self, owner: type, name: str, declaration: Declaration) -> None:
        self._owner = owner
        self._name = name
        self._declaration = declaration

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._owner.__dict__[self._name] is self:
            self._generate()
        return self._owner.__dict__[self._name]

    def _generate(self) -> None:
        owner, declaration = self._owner, self._declaration
        body = {"__annotations__": declaration.annotations, **declaration.defaults}
        decorate = dataclasses.dataclass(
            init=False, repr=False, eq=False, match_args=False, kw_only=declaration.kw_only
        )
        twin: Any = decorate(new_class_like(owner, body))
        fields: dict[str, dataclasses.Field[Any]] = {}
        for base in owner.__mro__[-1:0:-1]:
            if FIELDS in base.__dict__:
                fields |= getattr(base, FIELDS)
        fields |= twin.__dataclass_fields__
        twin.__dataclass_params__.frozen = declaration.frozen
        positional = tuple(name for name, field in fields.items() if field.init and not field.kw_only)
        for name, value in zip(DEFERRED, (fields, twin.__dataclass_params__, positional), strict=True):
            if isinstance(owner.__dict__[name], DeferredFields):
                setattr(owner, name, value)


def declaration_of(cls: type, *, frozen: bool, kw_only: bool, slots: bool) -> Declaration | None:
    """Return what a class declares, or None if the standard library has to look at it at once."""
    annotations: dict[str, Any] = inspect.get_annotations(cls)
    for annotation in annotations.values():
        if not isinstance(annotation, str) or any(part in annotation for part in _SPECIAL_ANNOTATIONS):
            return None
    if slots and "__slots__" in cls.__dict__:
        return None
    bases = []
    for base in cls.__mro__[-1:0:-1]:
        if FIELDS in base.__dict__:
            declaration = base.__dict__.get(DECLARATION)
            if declaration is None or declaration.frozen is not frozen:
                return None
            bases.append(declaration)
    defaults = {}
    for name in annotations:
        default = getattr(cls, name, dataclasses.MISSING)
        if default is dataclasses.MISSING or isinstance(default, MemberDescriptorType):
            continue
        value = default.default if isinstance(default, dataclasses.Field) else default
        if value.__class__.__hash__ is None:
            return None
        defaults[name] = default
    for name, value in cls.__dict__.items():
        if isinstance(value, dataclasses.Field) and name not in annotations:
            return None
    return Declaration(annotations, defaults, bases, frozen=frozen, kw_only=kw_only)


def fields_of(cls: type) -> dict[str, tuple[Any, Any]]:
    """Return the type and a new ``Field`` of each field, the bases' included, without metadata."""
    declaration: Declaration | None = cls.__dict__.get(DECLARATION)
    if declaration is not None:
        return declaration.fields()
    declared = dataclasses.fields(cls)
    names = {field.name for field in declared}
    for name, field in cls.__dataclass_fields__.items():  # type: ignore[attr-defined]
        if name not in names and "InitVar" in str(field.type):
            raise TypeError(f"{cls.__qualname__}.{name}: a dataclass of Tidelog has no InitVar")
    return {field.name: (field.type, _copy(field)) for field in declared}


def new_class_like(cls: type, body: dict[str, Any]) -> type:
    """Return a class with the name of another, from which the standard library generates a part of the other."""
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return new_class(cls.__name__, (), {}, lambda namespace: namespace.update(named | body))


def _copy(field: dataclasses.Field[Any]) -> Any:
    names = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    arguments: dict[str, Any] = {name: getattr(field, name) for name in names}
    return dataclasses.field(**arguments)
