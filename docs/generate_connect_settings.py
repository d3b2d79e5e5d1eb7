"""Writes the reference of connectors' settings, docs/connect/settings.md, from their definitions.

``python docs/generate_connect_settings.py`` exits with 1 when the committed page is stale; ``--write`` replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tidelog_connect.configuration import (
    CaseInsensitiveValidString,
    Composite,
    ConfigKey,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    Range,
    ValidList,
    ValidString,
)
from tidelog_connect.configuration.values import setting_text
from tidelog_connect.connectors.registry import BUILT_IN
from tidelog_connect.connectors.shared_settings import shared_settings
from tidelog_connect.converters import CONVERTERS
from tidelog_connect.predicates import PREDICATES
from tidelog_connect.transforms.registry import TRANSFORMS

PAGE = Path(__file__).resolve().parent / "connect" / "settings.md"
_VERSION = "that of Tidelog"
_OF_KEY, _OF_VALUE = "$Key", "$Value"

_HEAD = """# Settings of connectors

All settings of the connectors, converters, transforms and predicates that Tidelog has. Those of workers are on the page
[Configuration](../configuration.md#connect-workers). A connector with an unknown key or an invalid value is refused
with all of its errors. `GET /connector-plugins/NAME/config` and `tidelog connector validate` know the same definitions.
This page is generated: change a definition, then run `make docs`.

The settings of a converter have its prefix (`value.converter.schemas.enable`), those of transforms and predicates the
prefix of their alias (`transforms.ALIAS.field`).
"""


def main() -> int:
    """Compare the page with the definitions, or write it."""
    fresh = render()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(fresh, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh:
        print(f"stale: docs/connect/{PAGE.name}; run `make docs`", file=sys.stderr)
        return 1
    return 0


def render() -> str:
    """Return the page as Markdown."""
    sources, sinks = (list(shared_settings(kind, _VERSION)) for kind in ("source", "sink"))
    of_sinks = {key.name for key in sinks}
    of_all = {key.name for key in sources if key.name in of_sinks}
    parts = [
        _HEAD,
        _section("All connectors", [key for key in sources if key.name in of_all]),
        _section("All sources", [key for key in sources if key.name not in of_all]),
        _section("All sinks", [key for key in sinks if key.name not in of_all]),
    ]
    connectors = sorted(BUILT_IN, key=lambda each: _simple(each.class_name))
    parts += [_section(_simple(each.class_name), each.config()) for each in connectors]
    for kind, plugins in (("Converter", CONVERTERS), ("Transform", TRANSFORMS), ("Predicate", PREDICATES)):
        for name in _full_names(plugins.names):
            settings = list(plugins.find(name).config)
            if settings:
                parts.append(_section(f"{kind} {_simple(name).removesuffix(_OF_KEY)}", settings))
    return "".join(parts)


def _full_names(names: Iterable[str]) -> list[str]:
    """Return the full names of plugins, without the second of a pair for keys and values, whose settings are equal."""
    return sorted({name for name in names if "." in name and not name.endswith(_OF_VALUE)}, key=_simple)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _section(title: str, keys: Iterable[ConfigKey]) -> str:
    rows = ["| key | type | default | values | meaning |", "|---|---|---|---|---|", *map(_row, keys)]
    return f"\n## {title}\n\n" + "\n".join(rows) + "\n"


def _row(key: ConfigKey) -> str:
    default = "required"
    if key.has_default:
        text = setting_text(key.default)
        default = f"`{text}`" if text else "not set"
    cells = (f"`{key.name}`", key.type.value.lower(), default, _values(key.validator), key.documentation.strip())
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _values(validator: object) -> str:
    """Return the values that a validator accepts; nothing if the meaning says it."""
    match validator:
        case Range(minimum=None, maximum=None):
            return ""
        case Range(minimum=minimum, maximum=None):
            return f"at least {minimum}"
        case Range(minimum=None, maximum=maximum):
            return f"at most {maximum}"
        case Range(minimum=minimum, maximum=maximum):
            return f"{minimum} to {maximum}"
        case ValidString(texts=texts):
            return ", ".join(f"`{text}`" for text in texts if text is not None)
        case CaseInsensitiveValidString(texts=texts):
            return ", ".join(f"`{text}`" for text in texts) + ", in any case"
        case ValidList(texts=texts):
            return "some of " + ", ".join(f"`{text}`" for text in texts)
        case ListSize(maximum=maximum):
            return f"at most {maximum} elements"
        case NonEmptyString() | NonEmptyStringWithoutControlChars():
            return "not empty"
        case Composite(validators=validators):
            return "; ".join(dict.fromkeys(filter(None, map(_values, validators))))
    return ""


if __name__ == "__main__":
    sys.exit(main())
