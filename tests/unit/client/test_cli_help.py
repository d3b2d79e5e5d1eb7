from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tidelog.cli.commands import app

WIDTH = 80


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if hasattr(command, "list_commands"):
        context = command.make_context("tidelog", [], resilient_parsing=True)
        for name in command.list_commands(context):
            yield from command_paths(command.get_command(context, name), (*path, name))


PATHS = list(command_paths(get_command(app)))


def help_of(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(WIDTH)}, prog_name="tidelog")
    assert result.exit_code == 0
    return result.stdout


def test_cli_help_knows_the_commands_of_all_parts() -> None:
    for path in ("dev", "topic create", "quorum describe", "quorum dump", "log dump", "log verify", "log-dirs move"):
        assert tuple(path.split()) in PATHS


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_cli_help_fits_the_terminal_and_cuts_nothing_off(path: tuple[str, ...]) -> None:
    text = help_of(path)
    assert text.startswith(f"Usage: {' '.join(('tidelog', *path))} [OPTIONS]")
    for line in text.splitlines():
        # A path in an example may be longer than the line: it stays whole, so that it can be copied.
        assert len(line) <= WIDTH or " " not in line.strip()
    assert "…" not in text
    assert "..." not in text.replace("]...", "").replace("}...", "").replace(",...", "").replace(
        "topic ...", ""
    ).replace("... this", "").replace("DIR...", "")


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_cli_help_shows_an_example_of_each_command(path: tuple[str, ...]) -> None:
    text = help_of(path)
    if "\nCommands:\n" not in text:
        assert f"tidelog {' '.join(path)}" in text.partition("\n")[2]


def test_cli_usage_errors_name_what_is_wrong_below_the_usage() -> None:
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-c", "from tidelog.cli.main import main; main()", "topic", "crate"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == "Error: No such command 'crate'. Did you mean 'create'?"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("consume", "t", "--from-beginning", "--offset", "3"), "--offset"),
        (("quorum", "describe", "-b", "a:1", "--bootstrap-controller", "b:1"), "--bootstrap-controllers"),
    ],
)
def test_cli_refuses_options_that_exclude_each_other(arguments: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert f"Invalid value for {option}:" in result.stderr
    assert "exclude each other" in result.stderr
