"""Settings of transforms, predicates and converters, without Spark: names, errors and field paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import ConfigException
from tidelog_connect.converters import CONVERTERS, create_converter
from tidelog_connect.predicates import PREDICATES
from tidelog_connect.schemas import (
    ConnectSchema,
    DataException,
    SchemaType,
    connect_schema_of_avro,
    schema_from_json,
    schema_to_json,
)
from tidelog_connect.transforms.chain import TransformChain
from tidelog_connect.transforms.field_path import steps_of
from tidelog_connect.transforms.headers import header_text
from tidelog_connect.transforms.registry import TRANSFORMS

PACKAGE = "org.apache.kafka.connect.transforms."
KAFKAS = [
    *[f"{name}${side}" for name in ("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField",
      "MaskField", "ReplaceField", "SetSchemaMetadata", "TimestampConverter") for side in ("Key", "Value")],
    *["DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey"],
]  # fmt: skip


def test_registry_has_every_transform_that_kafka_ships() -> None:
    assert {plugin.alias for plugin in TRANSFORMS.values()} == {*KAFKAS}
    assert {plugin.alias for plugin in PREDICATES.values()} == {"HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"}


def test_transform_found_by_its_full_name_and_its_alias() -> None:
    assert TRANSFORMS.find("HoistField$Value") is TRANSFORMS.find(f"{PACKAGE}HoistField$Value")
    with pytest.raises(ConfigException) as caught:
        TRANSFORMS.find("NoSuch")
    assert caught.value.message == "Invalid value NoSuch for configuration type: Class NoSuch could not be found."


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("Cast$Value", {"spec": "int8,a:int8"}, "Cast transformations that specify a type to cast the entire value to"
         " may only specify a single cast in their spec"),
        ("Cast$Value", {"spec": "a:bytes"}, "Cast transformation does not support casting to BYTES; supported types"
         " are [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING]"),
        ("Cast$Value", {"spec": ""}, "Must specify at least one field to cast."),
        ("MaskField$Value", {"fields": ""}, "Invalid value [] for configuration fields: Empty list"),
        ("ReplaceField$Value", {"renames": "a"}, "Invalid value [a] for configuration renames: Invalid rename mapping:"
         " a"),
        ("HeaderFrom$Value", {"fields": "a", "headers": "a,b", "operation": "copy"}, "'fields' config must have the"
         " same number of elements as 'headers' config."),
        ("HeaderFrom$Value", {"fields": "a", "headers": "a", "operation": "keep"}, "Invalid value keep for"
         " configuration operation: String must be one of: move, copy"),
        ("InsertField$Value", {}, "No field insertion configured"),
        ("SetSchemaMetadata$Value", {}, "Neither schema name nor version configured"),
        ("TimestampConverter$Value", {"target.type": "string"}, "TimestampConverter requires format option to be"
         " specified when using string timestamps"),
        ("ExtractField$Value", {"field": "`a", "field.syntax.version": "v2"}, "Incomplete backtick pair in path: [`a],"
         " consider adding a backslash before backtick at position 0 to escape it"),
        ("HoistField$Value", {}, 'Missing required configuration "field" which has no default value.'),
    ],
)  # fmt: skip
def test_transform_refuses_settings_in_kafkas_words(kind: str, settings: dict[str, str], message: str) -> None:
    own = {f"transforms.t.{name}": value for name, value in settings.items()}
    with pytest.raises(ConfigException) as caught:
        TransformChain.of({"transforms": "t", "transforms.t.type": kind, **own})
    assert caught.value.message == message


@pytest.mark.parametrize("regex", ["(", "[a", "*a", "a{2"[:1] + "("])
def test_router_refuses_an_invalid_regex(regex: str) -> None:
    with pytest.raises(ConfigException, match="Invalid regex"):
        TRANSFORMS[f"{PACKAGE}RegexRouter"].config.parse({"regex": regex, "replacement": ""})


@pytest.mark.parametrize("regex", [r"(?<name>\w+)-\k<name>", r"\p{Alpha}+", r"\Q(.\E", "a++b", "[a-z&&[^b]]"])
def test_router_accepts_javas_syntax(regex: str) -> None:
    TRANSFORMS[f"{PACKAGE}RegexRouter"].config.parse({"regex": regex, "replacement": ""})


def test_unknown_setting_of_a_transform_refused_with_the_nearest_one() -> None:
    settings = {"transforms": "t", "transforms.t.type": "HoistField$Value", "transforms.t.feild": "x"}
    with pytest.raises(ConfigException, match=r"did you mean transforms\.t\.field\?"):
        TransformChain.of(settings)


def test_predicate_must_be_defined() -> None:
    settings = {"transforms": "t", "transforms.t.type": "Filter", "transforms.t.predicate": "p"}
    with pytest.raises(ConfigException, match="Predicate is not among those defined: none"):
        TransformChain.of(settings)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("a.", ["a", ""]),
        ("`a`b`", ["a`b"]),
        ("`a\\`.b`.c", ["a`.b", "c"]),
    ],
)
def test_path_of_nested_fields(path: str, steps: list[str]) -> None:
    assert steps_of(path, "V2") == steps
    assert steps_of(path, "v1") == [path]


@given(st.lists(st.text("ab. ", min_size=1).filter(lambda name: name.strip()), min_size=1, max_size=4))
def test_quoted_path_is_split_at_its_names(names: list[str]) -> None:
    assert steps_of(".".join(f"`{name}`" for name in names), "V2") == names


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("1e3", "1000"),
        ("1.50", "1.5"),
        ("-0.10", "-0.1"),
        ("007", "7"),
        ("null", None),
        ("true", "true"),
        ("a b", "a b"),
    ],
)
def test_literal_header_as_simple_header_converter_writes_it(literal: str, text: str | None) -> None:
    assert header_text(literal) == text


@pytest.mark.parametrize("name", [*CONVERTERS, *(plugin.alias for plugin in CONVERTERS.values())])
def test_converter_created_by_its_name(name: str) -> None:
    settings = {"schema.content": '"string"'} if name.endswith("AvroConverter") else {}

    assert create_converter(name, settings)[0] in CONVERTERS


def test_converter_refuses_unknown_settings_and_schemas() -> None:
    with pytest.raises(ConfigException, match=r"Unknown setting of JsonConverter"):
        create_converter("JsonConverter", {"schema.enable": "true"})
    with pytest.raises(ConfigException, match="Not JSON"):
        create_converter("JsonConverter", {"schema.content": "{"})
    with pytest.raises(DataException, match="Unknown schema type: int31"):
        create_converter("JsonConverter", {"schema.content": '{"type": "int31"}'})


def test_schema_keeps_its_json() -> None:
    text = {
        "type": "struct",
        "fields": [
            {"type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp", "version": 1,
             "field": "at"},
            {"type": "array", "items": {"type": "string", "optional": False}, "optional": False, "field": "tags"},
            {"type": "map", "keys": {"type": "string", "optional": False},
             "values": {"type": "double", "optional": True}, "optional": True, "field": "sizes"},
            {"type": "bytes", "optional": False, "name": "org.apache.kafka.connect.data.Decimal",
             "parameters": {"scale": "2"}, "field": "price"},
        ],
        "optional": False,
        "name": "order",
    }  # fmt: skip

    assert schema_to_json(schema_from_json(text)) == text


def test_schema_with_a_field_twice_refused() -> None:
    text = {"type": "struct", "fields": [{"type": "int32", "field": "a"}, {"type": "int64", "field": "a"}]}
    with pytest.raises(DataException, match="field name duplication a"):
        schema_from_json(text)


def test_connect_schema_of_an_avro_record() -> None:
    avro = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}},
            {"name": "before", "type": ["null", "State"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }

    schema = connect_schema_of_avro(avro)

    assert schema.name == "shop.Order"
    assert [(field.name, field.schema.type, field.schema.optional) for field in schema.fields] == [
        ("id", SchemaType.INT64, False),
        ("note", SchemaType.STRING, True),
        ("state", SchemaType.STRING, False),
        ("before", SchemaType.STRING, True),
        ("at", SchemaType.INT64, False),
    ]


@pytest.mark.parametrize(
    "avro",
    [
        ["int", "string"],
        "Unknown",
        {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
    ],
)
def test_avro_schema_without_a_connect_schema_refused(avro: object) -> None:
    with pytest.raises(DataException):
        connect_schema_of_avro(avro)


def test_schema_is_a_value() -> None:
    assert ConnectSchema(SchemaType.INT8).as_optional() == ConnectSchema(SchemaType.INT8, optional=True)
