"""The page of the command line names every command, and no option that there is not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tidelog_cli.commands import app
from tidelog_cli.output.hints import hint_for
from tidelog_foundation.errors import ErrorCode

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^(?:.*\| )?(tidelog [^#\n]*)", re.MULTILINE)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "list_commands"):
        yield path
        return
    context = command.make_context("tidelog", [], resilient_parsing=True)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if not found.hidden:
            yield from commands(found, (*path, name))


def examples() -> list[list[str]]:
    # Of a line all that stands before a pipe or a redirection, and what comes after a pipe.
    lines = COMMAND.findall(re.sub(r"\\\n *", "", PAGE))
    parts = [part for line in lines for part in re.split(r" \| | > | < ", line)]
    return [shlex.split(part.replace("$'", "'"))[1:] for part in parts if part.startswith("tidelog ")]


def test_page_has_an_example_of_every_command() -> None:
    shown = examples()
    missing = [path for path in commands(get_command(app)) if not any(tuple(e[: len(path)]) == path for e in shown)]
    assert missing == []


def test_hints_name_commands_that_there_are() -> None:
    known = set(commands(get_command(app)))
    named = [
        tuple(words.split())
        for hint in filter(None, map(hint_for, ErrorCode))
        for words in re.findall(r"tidelog ([a-z-]+(?: [a-z-]+)?)", hint)
    ]
    assert named
    assert [words for words in named if words not in known and words[:1] not in known] == []


def test_examples_of_the_page_are_understood() -> None:
    known = set(commands(get_command(app)))
    root = get_command(app)
    for words in examples():
        length = next((n for n in (1, 2, 3) if tuple(words[:n]) in known), None)
        assert length is not None, words
        command, context = root, root.make_context("tidelog", [], resilient_parsing=True)
        for name in words[:length]:
            command = command.get_command(context, name)
        options = {option for parameter in command.params for option in parameter.opts}
        given = [word.partition("=")[0] for word in words[length:] if re.match(r"--[a-z]", word)]
        assert [option for option in given if option not in options] == [], words
