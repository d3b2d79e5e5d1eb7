from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tidelog.testing import FakeCluster
from tidelog_cli.commands import app
from tidelog_cli.options.profiles import Profile, write_profile

WIDTH = 80


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if hasattr(command, "list_commands"):
        context = command.make_context("tidelog", [], resilient_parsing=True)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if not found.hidden:
                yield from command_paths(found, (*path, name))


PATHS = list(command_paths(get_command(app)))


def help_of(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(WIDTH)}, prog_name="tidelog")
    assert result.exit_code == 0
    return result.stdout


def test_cli_help_knows_the_commands_of_all_parts() -> None:
    for path in (
        "dev",
        "group reset-offsets",
        "cluster features upgrade",
        "quorum dump",
        "log verify",
        "verify replicas",
    ):
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


def test_cli_help_has_the_commands_in_groups_in_their_order() -> None:
    text = help_of(())
    assert [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        *("Options:", "Records:", "Topics and groups:", "The cluster:", "Around it:")
    ]
    positions = [
        text.index(f"\n  {name} ") for name in ("produce", "topic", "group", "cluster", "log ", "dev", "chaos")
    ]
    assert positions == sorted(positions)


def test_cli_completes_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TIDELOG_COMPLETE", "complete_bash")
    environment = {"COMP_WORDS": "tidelog group re", "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=environment, prog_name="tidelog")
    assert (result.exit_code, result.stdout) == (0, "reset-offsets\n")


def test_cli_completes_topics_groups_and_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("_TIDELOG_COMPLETE", "complete_bash")
    monkeypatch.setenv("TIDELOG_PROFILE", str(tmp_path / "profile.toml"))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)

    def completed(words: str) -> list[str]:
        environment = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return CliRunner().invoke(app, [], env=environment, prog_name="tidelog").stdout.split()

    with FakeCluster() as cluster:
        for name in ("flights", "flags", "orders"):
            cluster.create_topic(name)
        write_profile("fake", Profile(cluster.bootstrap_servers), use=True)
        assert completed("tidelog topic describe fl") == ["flags", "flights"]
        assert completed("tidelog consume o") == ["orders"]
        assert completed("tidelog profile use f") == ["fake"]
        assert completed("tidelog group describe x") == []
        assert completed("tidelog topic describe --profile nope fl") == []


def test_cli_says_what_to_install_where_its_packages_are_not() -> None:
    program = "import sys; sys.modules['typer'] = None; from tidelog_cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "tidelog: error: typer is not installed: pip install 'tidelog[cli]'\n"


@pytest.mark.costly
def test_cli_usage_errors_name_what_is_wrong_below_the_usage() -> None:
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "topic", "descibe"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == "Error: No such command 'descibe'. Did you mean 'describe'?"


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
    assert option in result.stderr
    assert "exclude each other" in result.stderr
