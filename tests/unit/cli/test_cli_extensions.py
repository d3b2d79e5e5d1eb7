"""Commands of other parts in the client's command line."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from typer.testing import CliRunner, Result

from tidelog_cli import extensions
from tidelog_cli.commands import app


def run_with(monkeypatch: pytest.MonkeyPatch, points: list[EntryPoint], *args: str) -> Result:
    """Run the command line as an installation with these entry points does."""
    monkeypatch.setattr(extensions, "_entry_points", lambda group: EntryPoints(points).select(group=group))
    return CliRunner().invoke(app, list(args))


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, extensions.ENTRY_POINT_GROUP)


def test_cli_has_the_log_command_of_the_node() -> None:
    help_text = CliRunner().invoke(app, ["--help"]).stdout
    assert "log " in help_text
    assert CliRunner().invoke(app, ["log", "--help"]).exit_code == 0


@pytest.mark.parametrize("command", [["log"], ["log", "dump"], ["quorum", "dump"]])
def test_commands_of_other_parts_offer_no_completion_of_their_own(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "completion" not in result.stdout


@pytest.mark.parametrize(
    ("points", "missing"),
    [([], "tidelog_node"), ([point("log", "no_such_part.tools:app")], "no_such_part")],
    ids=["without the node", "without what the node needs"],
)
@pytest.mark.parametrize("args", [("log",), ("log", "dump", "--deep", "x.log")])
def test_cli_says_what_to_install_for_a_command_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, points: list[EntryPoint], missing: str, args: tuple[str, ...]
) -> None:
    result = run_with(monkeypatch, points, *args)
    assert result.exit_code == 1
    assert result.stderr == f"tidelog: error: {missing} is not installed: pip install 'tidelog[node]'\n"
    assert run_with(monkeypatch, points, "--help").exit_code == 0


def test_cli_takes_commands_of_any_installed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [point("more", "tidelog_cli.topics.topic:app")]
    assert "more" in run_with(monkeypatch, points, "--help").stdout
    assert run_with(monkeypatch, points, "more", "create", "--help").exit_code == 0
    assert run_with(monkeypatch, points, "nope").exit_code == 2
