"""The reference of the settings is complete and up to date."""

from __future__ import annotations

import ast
import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from programs import load_program

from tidelog_foundation.config import at_least, describe, setting

REPOSITORY = Path(__file__).parents[3]
_LOADED_S = time.time()


@dataclass(frozen=True, slots=True)
class _Settings:
    name: str = setting(doc="Who this is.")
    retries: int = setting(5, doc="How often to try|retry", check=at_least(0), dynamic=True)
    password: str = setting("letmein", doc="What to say", secret=True)
    rack: str | None = setting(None, doc="Where this is")
    idempotent: bool = setting(True, doc="Whether to write once")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_program(REPOSITORY / "docs" / "generate_configuration.py")


def test_page_is_up_to_date(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.render(), "run `make docs`"
    assert generator.PROPERTIES_PAGE.read_text() == generator.render_librdkafka(), "run `make docs`"


def test_page_covers_every_declared_key(generator: ModuleType) -> None:
    page = {info.key for _, _, path in generator.SECTIONS for info in describe(_load(path))}
    paths = list(_classes_with_settings())
    if any(path.stat().st_mtime > _LOADED_S for path in _modules()):
        pytest.skip("the modules have changed since this process has imported them")
    declared = {info.key for path in paths for info in describe(_load(path))}
    assert declared == page


def _classes_with_settings() -> Iterator[str]:
    for path in _modules():
        module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts[1:])
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "setting(" in text else ():
            if isinstance(node, ast.ClassDef) and any(map(_declares_a_setting, node.body)):
                yield f"{module}:{node.name}"


def _modules() -> list[Path]:
    return sorted(path for root in ("client", "node", "quorum") for path in (REPOSITORY / root).rglob("*.py"))


def _load(path: str) -> type[object]:
    module, _, name = path.partition(":")
    found: type[object] = getattr(importlib.import_module(module), name)
    return found


def _declares_a_setting(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    return isinstance(function, ast.Name) and function.id in (
        "setting",
        "int_setting",
        "dynamic_setting",
        "dynamic_int_setting",
    )


def test_row_says_what_a_setting_is(generator: ModuleType) -> None:
    rows = generator._table(_Settings).splitlines()[2:]
    assert rows == [
        "| `name` | text | required | Who this is. |",
        r"| `retries` | a whole number | `5` | How often to try\|retry. Can change at run time. |",
        "| `password` | text | hidden | What to say. Secret: never shown. |",
        "| `rack` | text | not set | Where this is. |",
        "| `idempotent` | true or false | `true` | Whether to write once. |",
    ]


def test_stale_page_is_noticed(generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "configuration.md")
    monkeypatch.setattr(generator, "PROPERTIES_PAGE", tmp_path / "librdkafka.md")
    monkeypatch.setattr(generator, "SECTIONS", ())
    monkeypatch.setattr("sys.argv", ["generate_configuration.py"])
    assert generator.main() == 1
    monkeypatch.setattr("sys.argv", ["generate_configuration.py", "--write"])
    assert generator.main() == 0
    monkeypatch.setattr("sys.argv", ["generate_configuration.py"])
    assert generator.main() == 0
    for name in ("configuration.md", "librdkafka.md"):
        fresh = (tmp_path / name).read_text()
        (tmp_path / name).write_text("old")
        assert generator.main() == 1
        (tmp_path / name).write_text(fresh)
