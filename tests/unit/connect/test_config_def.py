"""Definitions of settings: values, messages and the JSON of Connect's REST API, as Kafka 4.1 gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    CaseInsensitiveValidString,
    Composite,
    ConfigDef,
    ConfigException,
    Importance,
    KnownClass,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Password,
    Range,
    Type,
    Validator,
    ValidList,
    ValidString,
    Width,
    double_text,
    parse_value,
    setting_text,
)


@pytest.mark.parametrize(
    ("kind", "text", "value", "shown"),
    [
        (Type.BOOLEAN, "TRUE", True, "true"),
        (Type.BOOLEAN, " false ", False, "false"),
        (Type.STRING, " 12 ", "12", "12"),
        (Type.INT, "+5", 5, "5"),
        (Type.LONG, "99999999999", 99999999999, "99999999999"),
        (Type.DOUBLE, "1e3", 1000.0, "1000.0"),
        (Type.DOUBLE, "1d", 1.0, "1.0"),
        (Type.DOUBLE, "0x1p3", 8.0, "8.0"),
        (Type.DOUBLE, "99999999999", 99999999999.0, "9.9999999999E10"),
        (Type.LIST, "a, b ,,c", ["a", "b", "", "c"], "a,b,,c"),
        (Type.LIST, ",", ["", ""], ","),
        (Type.LIST, " ", [], ""),
        (Type.CLASS, "a.B$C", "a.B$C", "a.B$C"),
    ],
)
def test_value_parsed_by_its_type(kind: Type, text: str, value: object, shown: str) -> None:
    parsed = parse_value("n", text, kind)

    assert parsed == value
    assert type(parsed) is type(value)
    assert setting_text(parsed) == shown


def test_password_is_never_printed() -> None:
    parsed = parse_value("n", " secret ", Type.PASSWORD)

    assert isinstance(parsed, Password)
    assert parsed.secret == "secret"
    assert {str(parsed), repr(parsed), f"{parsed}", setting_text(parsed)} == {"[hidden]"}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Type.BOOLEAN, "yes", "Invalid value yes for configuration n: Expected value to be either true or false"),
        (Type.INT, "99999999999", "Invalid value 99999999999 for configuration n: Not a number of type INT"),
        (Type.INT, "1_0", "Invalid value 1_0 for configuration n: Not a number of type INT"),
        (Type.SHORT, "40000", "Invalid value 40000 for configuration n: Not a number of type SHORT"),
        (Type.LONG, "", "Invalid value  for configuration n: Not a number of type LONG"),
        (Type.DOUBLE, "x", "Invalid value x for configuration n: Not a number of type DOUBLE"),
    ],
)
def test_value_of_another_type_refused_in_kafkas_words(kind: Type, text: str, message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        parse_value("n", text, kind)

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("validator", "value", "message"),
    [
        (Range(1), 0, "Invalid value 0 for configuration n: Value must be at least 1"),
        (Range(0.5, 5.25), 9.0, "Invalid value 9.0 for configuration n: Value must be no more than 5.25"),
        (Range(1), None, "Invalid value null for configuration n: Value must be non-null"),
        (ValidString(["a", "b"]), None, "Invalid value null for configuration n: String must be one of: a, b"),
        (ValidList(["a", "b"]), ["a", "c"], "Invalid value c for configuration n: String must be one of: a, b"),
        (NonNull(), None, "Invalid value null for configuration n: entry must be non null"),
        (NonEmptyString(), "", "Invalid value  for configuration n: String must be non-empty"),
        (
            NonEmptyStringWithoutControlChars(),
            "a\n\tb",
            "Invalid value a\n\tb for configuration n: String may not contain control sequences but had the following"
            " ASCII chars: 10, 9",
        ),
        (NonEmptyStringWithoutControlChars(), "", "Invalid value  for configuration n: String may not be empty"),
        (ListSize(2), [1, 2, 3], "Invalid value [1, 2, 3] for configuration n: exceeds maximum list size of [2]."),
        (
            CaseInsensitiveValidString(["a", "b"]),
            "C",
            "Invalid value C for configuration n: String must be one of (case insensitive): A, B",
        ),
        (
            KnownClass({"a.B"}),
            "no.Such",
            "Invalid value no.Such for configuration n: Class no.Such could not be found.",
        ),
        (
            Composite([NonNull(), ValidString(["x"])]),
            "y",
            "Invalid value y for configuration n: String must be one of: x",
        ),
    ],
)
def test_validator_refuses_in_kafkas_words(validator: Validator, value: object, message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        validator("n", value)

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("validator", "value"),
    [
        (Range(1, 5), 5),
        (ValidString(["a"]), "a"),
        (ValidList(["a"]), []),
        (ValidList(["a"]), None),
        (NonEmptyString(), None),
        (NonEmptyStringWithoutControlChars(), None),
        (ListSize(1), None),
        (CaseInsensitiveValidString(["a"]), "A"),
        (KnownClass({"a.B"}), None),
    ],
)
def test_validator_accepts(validator: Validator, value: object) -> None:
    validator("n", value)


def sample() -> ConfigDef:
    """Return a setting with a dependent, which has a limit, and a list."""
    return (
        ConfigDef()
        .define(
            "a",
            Type.INT,
            NO_DEFAULT_VALUE,
            Importance.LOW,
            "A's words",
            group="g",
            order=1,
            width=Width.SHORT,
            display_name="A",
            dependents=["b"],
        )
        .define("b", Type.INT, "5", Importance.LOW, "B's words", validator=Range(3))
        .define("c", Type.LIST, "x,y", Importance.HIGH, "C's words")
    )


def test_parse_gives_defaults_and_ignores_other_settings() -> None:
    assert sample().parse({"a": "7", "other": "1"}) == {"a": 7, "b": 5, "c": ["x", "y"]}


def test_parse_refuses_a_missing_setting() -> None:
    with pytest.raises(ConfigException) as caught:
        sample().parse({})

    assert caught.value.message == 'Missing required configuration "a" which has no default value.'


def test_validate_collects_every_error_of_a_setting() -> None:
    found = sample().define("d", Type.INT, None, Importance.LOW, "", dependents=["zz"]).validate({"a": "x", "b": "1"})

    assert found["a"].errors == ["Invalid value x for configuration a: Not a number of type INT"]
    assert found["b"].errors == ["Invalid value 1 for configuration b: Value must be at least 3"]
    assert found["b"].value == 1
    assert found["c"].value == ["x", "y"]
    assert found["zz"].errors == ["zz is referred in the dependents, but not defined."]
    assert not found["zz"].visible


def test_validate_passes_null_to_the_validator_of_an_unreadable_value() -> None:
    tasks = ConfigDef().define("tasks.max", Type.INT, "1", Importance.HIGH, "", validator=Range(1))

    assert tasks.validate({"tasks.max": "x"})["tasks.max"].errors == [
        "Invalid value x for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
    ]


def test_embedded_settings_have_a_prefix_and_their_validators_do_not() -> None:
    definition = ConfigDef()
    definition.embed("pre.", "G", 10, sample())

    keys = [(key.name, key.group, key.order, key.display_name, key.dependents) for key in definition]
    assert keys == [
        ("pre.c", "G", 10, "c", ()),
        ("pre.b", "G", 11, "b", ()),
        ("pre.a", "G: g", 12, "A", ("pre.b",)),
    ]
    assert definition.groups == ["G", "G: g"]
    found = definition.validate({"pre.a": "x", "pre.b": "1"})
    assert found["pre.a"].errors == ["Invalid value x for configuration pre.a: Not a number of type INT"]
    assert found["pre.b"].errors == ["Invalid value 1 for configuration b: Value must be at least 3"]


def test_definition_and_value_in_the_json_of_connects_rest_api() -> None:
    """The shape is that of a recorded answer of Kafka Connect 4.1."""
    documentation = "Field name for the single field that will be created in the resulting Struct or Map."
    hoist = ConfigDef().define("field", Type.STRING, NO_DEFAULT_VALUE, Importance.MEDIUM, documentation)

    assert list(hoist.keys["field"].as_json().items()) == [
        ("name", "field"),
        ("type", "STRING"),
        ("required", True),
        ("default_value", None),
        ("importance", "MEDIUM"),
        ("documentation", documentation),
        ("group", None),
        ("width", "NONE"),
        ("display_name", "field"),
        ("dependents", []),
        ("order", -1),
    ]
    assert hoist.validate({"field": "line"})["field"].as_json() == {
        "name": "field",
        "value": "line",
        "recommended_values": [],
        "errors": [],
        "visible": True,
    }


class OddNumbers:
    """Recommends odd numbers, and is visible when ``a`` is set."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> Sequence[object]:
        assert name == "b"
        return [1, 3]

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return parsed["a"] is not None


@pytest.mark.parametrize("prefix", ["", "pre."])
def test_recommender_sees_the_values_of_its_definition(prefix: str) -> None:
    child = (
        ConfigDef()
        .define("a", Type.INT, None, Importance.LOW, "")
        .define("b", Type.INT, None, Importance.LOW, "", recommender=OddNumbers())
    )
    definition = ConfigDef(child)
    if prefix:
        definition = ConfigDef()
        definition.embed(prefix, "G", 0, child)

    found = definition.validate({f"{prefix}a": "1"})[f"{prefix}b"]

    assert found.as_json()["recommended_values"] == ["1", "3"]
    assert found.visible
    assert not definition.validate({})[f"{prefix}b"].visible


def test_definitions_that_are_not_valid_are_refused() -> None:
    with pytest.raises(ConfigException, match=r"Configuration a is defined twice\."):
        sample().define("a", Type.INT, None, Importance.LOW, "")
    with pytest.raises(ConfigException, match="Value must be at least 3"):
        ConfigDef().define("n", Type.INT, 1, Importance.LOW, "", validator=Range(3))
    with pytest.raises(ConfigException, match="referred in the dependents, but not defined: zz"):
        ConfigDef().define("a", Type.INT, None, Importance.LOW, "", dependents=["zz"]).parse({})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1e-3, "0.001"),
        (9.5e-4, "9.5E-4"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (1e22, "1.0E22"),
        (123456.75, "123456.75"),
        (2e-23, "2.0E-23"),
        (5e-324, "4.9E-324"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_double_is_printed_as_in_java(number: float, text: str) -> None:
    assert double_text(number) == text


@given(st.floats(allow_nan=False))
def test_printed_double_is_read_back(number: float) -> None:
    assert parse_value("n", double_text(number), Type.DOUBLE) == number
