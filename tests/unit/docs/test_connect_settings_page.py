"""The reference of connectors' settings is complete and up to date."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from programs import load_program

from tidelog_connect.configuration import Composite, NonEmptyString, Range, ValidString
from tidelog_connect.connectors.registry import BUILT_IN
from tidelog_connect.transforms.registry import TRANSFORMS

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_program(REPOSITORY / "docs" / "generate_connect_settings.py")


def test_page_is_up_to_date(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.render(), "run `make docs`"


def test_page_has_every_setting_of_every_connector(generator: ModuleType) -> None:
    page = generator.render()
    for connector in BUILT_IN:
        section = page.partition(f"\n## {connector.class_name.rpartition('.')[2]}\n")[2].partition("\n## ")[0]
        assert [line.split("`")[1] for line in section.splitlines()[3:]] == [key.name for key in connector.config()]


@pytest.mark.parametrize(
    ("validator", "text"),
    [
        (Range(1), "at least 1"),
        (Range(0, 5), "0 to 5"),
        (ValidString(("a", None, "b")), "`a`, `b`"),
        (Composite((NonEmptyString(), Range(None, 3))), "not empty; at most 3"),
        (None, ""),
    ],
)
def test_row_says_which_values_are_valid(generator: ModuleType, validator: object, text: str) -> None:
    assert generator._values(validator) == text


def test_transforms_of_keys_and_values_have_the_same_settings(generator: ModuleType) -> None:
    for name in generator._full_names(TRANSFORMS.names):
        if name.endswith("$Key"):
            settings = [TRANSFORMS.find(each).config for each in (name, name.removesuffix("$Key") + "$Value")]
            assert [key.as_json() for key in settings[0]] == [key.as_json() for key in settings[1]]
