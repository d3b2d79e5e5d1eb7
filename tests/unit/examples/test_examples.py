"""The examples run, each on a cluster in memory, and prove what they say by assertions of their own."""

import importlib
import pkgutil

import pytest

import examples.groups
import examples.transactions

NAMES = sorted(
    f"{package.__name__}.{module.name}"
    for package in (examples.groups, examples.transactions)
    for module in pkgutil.iter_modules(package.__path__)
    if module.name != "cluster"
)


@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    importlib.import_module(name).main()
