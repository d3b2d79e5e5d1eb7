"""Paths to fields by ``field.syntax.version`` (KIP-821): V1 names a field, V2 separates nested names by dots (pure)."""

from __future__ import annotations

from tidelog_connect.configuration import CaseInsensitiveValidString, ConfigDef, ConfigException, Importance, Type

SYNTAX_VERSION = "field.syntax.version"


def with_syntax_version(definition: ConfigDef) -> ConfigDef:
    """Return a definition with the setting ``field.syntax.version``."""
    documentation = (
        "The syntax of field names. V1: the name of a field of the record. V2: names of nested fields, separated by"
        " dots; backticks enclose a name that contains dots, such as `foo.bar`.baz"
    )
    valid = CaseInsensitiveValidString(["V1", "V2"])
    return definition.define(SYNTAX_VERSION, Type.STRING, "V1", Importance.HIGH, documentation, validator=valid)


def steps_of(path: str, version: str) -> list[str]:
    """Return the names on a path.

    Raises:
        ConfigException: a backtick of V2 has no partner.
    """
    if version.upper() == "V1":
        return [path]
    steps: list[str] = []
    rest = path
    while rest:
        if rest[0] == "`":
            name, rest = _quoted(path, rest)
        else:
            name, dot, rest = rest.partition(".")
            rest = dot + rest
        steps.append(name)
        if rest == ".":
            steps.append("")
        rest = rest[1:]
    return steps


def _quoted(path: str, rest: str) -> tuple[str, str]:
    """Return the name in backticks at the start of the rest, and what follows it."""
    name, index = "", 1
    while True:
        end = rest.find("`", index)
        at_end = end == len(rest) - 1
        escaped = rest[end - 1] == "\\"
        if end < 0 or (at_end and escaped):
            raise ConfigException(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position"
                f" {len(path) - len(rest)} to escape it"
            )
        if at_end or (rest[end + 1] == "." and not escaped):
            return name + rest[index:end], rest[end + 1 :]
        name += rest[index : end - 1] + "`" if rest[end + 1] == "." else rest[index : end + 1]
        index = end + 1
