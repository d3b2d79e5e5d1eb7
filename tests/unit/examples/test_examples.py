"""The examples run, each on a cluster in memory, and prove what they say by assertions of their own."""

import importlib
import pkgutil

import pytest

import examples.groups

NAMES = sorted(m.name for m in pkgutil.iter_modules(examples.groups.__path__) if m.name != "cluster")


@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    importlib.import_module(f"examples.groups.{name}").main()
