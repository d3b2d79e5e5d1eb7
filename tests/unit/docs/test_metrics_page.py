"""The reference of the metrics is up to date."""

from __future__ import annotations

from pathlib import Path

from programs import load_program

REPOSITORY = Path(__file__).parents[3]


def test_page_is_up_to_date() -> None:
    generator = load_program(REPOSITORY / "docs" / "generate_metrics.py")
    assert generator.PAGE.read_text() == generator.render(), "run `make docs`"
