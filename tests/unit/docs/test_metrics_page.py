"""The reference of the metrics is up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_metrics", REPOSITORY / "docs" / "generate_metrics.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.PAGE.read_text() == generator.render(), "run `make docs`"
