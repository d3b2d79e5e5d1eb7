"""Dataclasses whose methods are generated at their first use are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from threading import Barrier, Thread
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog_foundation.dataclass import dataclass

T = TypeVar("T")
COMPARISONS = (operator.eq, operator.lt, operator.le, operator.gt, operator.ge)
FIELDS = ("alpha", "beta", "gamma", "delta")
OPTIONS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("init", "eq", "order", "frozen", "kw_only", "slots")}
).filter(lambda options: options["eq"] or not options["order"])
DECLARATIONS = st.lists(
    st.fixed_dictionaries(
        {name: st.booleans() for name in ("init", "repr", "compare", "is_plain")}
        | {
            "hash": st.sampled_from((None, None, True, False)),
            "kw_only": st.sampled_from((dataclasses.MISSING, dataclasses.MISSING, True, False)),
            "otherwise": st.sampled_from(({}, {"default": 7}, {"default_factory": list})),
        }
    ),
    max_size=len(FIELDS),
)
OWN = st.sets(st.sampled_from(("__init__", "__repr__", "__eq__", "__hash__", "__lt__", "__post_init__")), max_size=2)


def own_methods(names: set[str]) -> dict[str, Any]:
    """Return methods that a class may define itself."""
    methods: dict[str, Callable[..., Any]] = {
        "__init__": lambda self, *values, **named: None,
        "__repr__": lambda self: "own",
        "__eq__": lambda self, other: True,
        "__hash__": lambda self: 11,
        "__lt__": lambda self, other: True,
        "__post_init__": lambda self: object.__setattr__(self, "delta", 5) if hasattr(self, "delta") else None,
    }
    return {name: methods[name] for name in sorted(names)}


def declared(
    decorator: Callable[..., Any],
    options: dict[str, bool],
    fields: list[dict[str, Any]],
    own: set[str],
    base: type,
    names: tuple[str, ...] = FIELDS,
) -> Any:
    """Return a dataclass of a decorator, or the text of its error. A field with nothing but a default has it plain."""
    body: dict[str, Any] = {"__annotations__": {}, "__module__": __name__, "__doc__": "A class.", **own_methods(own)}
    for name, field in zip(names, fields, strict=False):
        body["__annotations__"][name] = "int"
        given = {key: value for key, value in field.items() if key not in ("otherwise", "is_plain")}
        if not field["is_plain"]:
            body[name] = dataclasses.field(**given, **field["otherwise"], metadata={"of": name})
        elif "default" in field["otherwise"]:
            body[name] = 7
    try:
        return decorator(**options)(type("Declared", (base,), body))
    except (TypeError, ValueError) as error:
        return str(error)


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or its error with the text, which names no object by its address."""
    try:
        return call()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error), str(error)


def behaviour(cls: Any) -> list[Any]:
    """Return what a class does in all that a dataclass is used for, and first in what needs a method alone."""
    seen: list[Any] = [outcome(partial(positional, cls, count)) for count in range(len(FIELDS) + 1)]
    names = [field.name for field in dataclasses.fields(cls)]
    attributes = ("type", "init", "repr", "hash", "compare", "kw_only", "default", "metadata")
    seen += [[getattr(field, name) for name in attributes] for field in dataclasses.fields(cls)]
    seen.append(outcome(lambda: get_type_hints(cls.__init__)))
    seen += [names, getattr(cls, "__match_args__", None), cls.__hash__ is None, cls.__doc__]
    seen.append(outcome(lambda: str(inspect.signature(cls))))

    def new(*values: object) -> Any:
        positional = [f for f in dataclasses.fields(cls) if f.init and not f.kw_only]
        named = [f for f in dataclasses.fields(cls) if f.init and f.kw_only]
        by_name = dict(zip([f.name for f in named], values[len(positional) :], strict=False))
        return cls(*values[: len(positional)], **by_name)

    seen.append(outcome(lambda: repr(new(1, 2, 3, 4)).replace(hex(0), "")) if "__repr__" in cls.__dict__ else None)
    for left, right in (((1, 2, 3, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 2, 3, 5)), ((), (1, 1, 1, 1))):
        seen += [outcome(partial(compared, compare, new, left, right)) for compare in COMPARISONS]
    if cls.__eq__ is not object.__eq__:
        seen.append(outcome(lambda: hash(new(1, 2, 3, 4))))
    seen.append(outcome(lambda: dataclasses.asdict(new(1, 2, 3, 4))))
    seen.append(outcome(lambda: dataclasses.asdict(copy.copy(new(1, 2, 3, 4)))))
    seen.append(outcome(lambda: dataclasses.asdict(dataclasses.replace(new(1, 2, 3, 4)))))
    # The standard library's method of a frozen class with slots fails for a name that is no field's.
    has_other = "__setattr__" not in cls.__dict__ or "__slots__" not in cls.__dict__
    for name in (*names, *(["other"] if has_other else [])):
        seen.append(outcome(partial(changed, setattr, new, name, 9)))
        seen.append(outcome(partial(changed, delattr, new, name)))
    return seen


def positional(cls: Any, count: int) -> list[Any]:
    """Return what a new object has in its fields that got its first values by position."""
    made = cls(*range(count))
    return [getattr(made, name, None) for name in FIELDS]


def compared(
    compare: Callable[..., Any], new: Callable[..., Any], left: tuple[int, ...], right: tuple[int, ...]
) -> Any:
    """Return whether two new objects are in a relation."""
    return compare(new(*left), new(*right))


def changed(change: Callable[..., None], new: Callable[..., Any], *arguments: object) -> Any:
    """Return what an object has in its fields after a change."""
    instance = new(1, 2, 3, 4)
    change(instance, *arguments)
    return [getattr(instance, field.name, None) for field in dataclasses.fields(instance)]


def check_same(ours: Any, theirs: Any, own: set[str]) -> None:
    """Check that two classes behave alike, or are refused for the same reason."""
    if isinstance(theirs, str):
        # A default before a field without one is found where the method is generated, if the class has none of its own.
        refused = isinstance(ours, str) or outcome(lambda: repr(ours(1))) == (TypeError, theirs)
        assert refused or "__init__" in own
    else:
        assert not isinstance(ours, str), ours
        assert behaviour(ours) == behaviour(theirs)


@given(OPTIONS, DECLARATIONS, OWN)
def test_class_is_that_of_the_standard_library(
    options: dict[str, bool], fields: list[dict[str, Any]], own: set[str]
) -> None:
    ours = declared(dataclass, options, fields, own, object)
    theirs = declared(dataclasses.dataclass, options, fields, own, object)
    check_same(ours, theirs, own)


@given(OPTIONS, DECLARATIONS, OPTIONS, DECLARATIONS, OWN)
def test_class_below_another_is_that_of_the_standard_library(
    of_base: dict[str, bool],
    fields_of_base: list[dict[str, Any]],
    options: dict[str, bool],
    fields: list[dict[str, Any]],
    own: set[str],
) -> None:
    of_base, fields = of_base | {"frozen": options["frozen"]}, fields[:2]
    bases = [
        declared(decorator, of_base, fields_of_base[:3], set(), object)
        for decorator in (dataclass, dataclasses.dataclass)
    ]
    assume(not any(isinstance(base, str) for base in bases))
    # The field gamma may be in both classes.
    names = ("gamma", "delta")
    ours = declared(dataclass, options, fields, own, bases[0], names)
    theirs = declared(dataclasses.dataclass, options, fields, own, bases[1], names)
    check_same(ours, theirs, own)


def test_field_may_have_the_name_of_the_first_parameter() -> None:
    body = {"__annotations__": {"self": "int"}, "__module__": __name__}
    for decorator in (dataclass, dataclasses.dataclass):
        assert decorator()(type("Odd", (), body))(5).self == 5


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Labelled(Point):
    label: str = ""


class Further(Point):
    """A class below a frozen one, which has attributes of its own."""


def test_methods_are_generated_at_their_first_use_each_alone() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        x: int

    def generated() -> list[str]:
        names = ("__init__", "__repr__", "__eq__", "__hash__")
        return [name for name in names if inspect.isfunction(Fresh.__dict__[name])]

    assert generated() == []
    fresh = Fresh(1)
    assert generated() == ["__init__"]
    assert fresh == Fresh(1)
    assert generated() == ["__init__", "__eq__"]
    assert len({fresh, Fresh(2)}) == 2
    assert generated() == ["__init__", "__eq__", "__hash__"]
    assert repr(fresh).endswith("Fresh(x=1)")
    assert len(generated()) == 4


def test_fields_of_the_bases_come_first() -> None:
    assert repr(Labelled(1, 2, "a")) == "Labelled(x=1, y=2, label='a')"
    assert Labelled(1) != Point(1)
    assert Labelled.__match_args__ == ("x", "y", "label")


def test_frozen_classes_of_both_kinds_are_below_each_other_and_others_are_not() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs(Labelled):
        more: int = 0

    @dataclass(frozen=True, slots=True)
    class Ours(Theirs):
        last: int = 0

    assert repr(Ours(1)).endswith(".Ours(x=1, y=0, label='', more=0, last=0)")
    with pytest.raises(FrozenInstanceError):
        Ours(1).more = 2  # type: ignore[misc]
    for decorator in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
            decorator(slots=True)(type("Thawed", (Labelled,), {}))


def test_frozen_class_below_one_that_is_not_is_refused() -> None:
    @dataclass(slots=True)
    class Thawed:
        x: int

    for decorator in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):
            decorator(frozen=True)(type("Frozen", (Thawed,), {}))


@dataclass(frozen=True, slots=True)
class Counted(Point):
    kind: ClassVar[str] = "counted"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Recounted(Counted):
    again: int = 2


@pytest.mark.parametrize("original", [Labelled(1, 2, "a"), Recounted(1, 2, 3, 4)], ids=lambda one: type(one).__name__)
def test_frozen_objects_are_pickled_and_copied(original: Any) -> None:
    assert pickle.loads(pickle.dumps(original)) == copy.deepcopy(original) == original
    if sys.version_info >= (3, 13):
        assert copy.replace(original, x=5) == dataclasses.replace(original, x=5)


def test_class_variables_are_no_fields_in_the_classes_below_either() -> None:
    assert repr(Recounted(1)) == "Recounted(x=1, y=0, count=1, again=2)"
    assert Recounted.kind == "counted"


def test_class_may_be_generic_and_register_itself_and_match() -> None:
    seen: list[str] = []

    class Registered:
        __slots__ = ()

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            seen.append(cls.__name__)

    @dataclass(frozen=True, slots=True)
    class Pair(Registered, Generic[T]):
        left: T
        right: T

    assert set(seen) == {"Pair"}
    match Pair[int](1, 2):
        case Pair(left, right):
            assert (left, right) == (1, 2)
    with pytest.raises(AttributeError):
        _ = Pair(1, 2).__dict__


def test_frozen_object_refuses_its_fields_alone_in_a_class_below() -> None:
    further = Further(1)
    further.note = "own"  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        further.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del further.x  # type: ignore[misc]
    del further.note  # type: ignore[attr-defined]


def test_class_without_a_text_has_its_name() -> None:
    assert Point.__doc__ == "Point"


def test_generated_methods_are_no_longer_abstract() -> None:
    class Shown(ABC):
        @abstractmethod
        def __repr__(self) -> str: ...

    @dataclass(frozen=True)
    class Value(Shown):
        x: int

    assert repr(Value(1)).endswith("Value(x=1)")


def test_initial_variables_are_refused() -> None:
    @dataclass()
    class Counted:
        start: dataclasses.InitVar[int]

    with pytest.raises(TypeError, match=r"Counted\.start: a dataclass of Tidelog has no InitVar"):
        Counted(1)


def test_frozen_class_that_assigns_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="is frozen and defines __setattr__"):

        @dataclass(frozen=True)
        class Own:
            def __setattr__(self, name: str, value: object) -> None: ...


def test_threads_may_use_a_class_first_at_the_same_time() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):

            @dataclass(frozen=True, slots=True)
            class Shared:
                x: int

            made: list[Any] = []
            barrier = Barrier(4)

            def use(cls: Any = Shared, into: list[Any] = made, start: Barrier = barrier) -> None:
                start.wait()
                assert [field.name for field in dataclasses.fields(cls)] == ["x"]
                into.append(cls(3))

            threads = [Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert made == [Shared(3)] * 4
    finally:
        sys.setswitchinterval(interval)
