"""A parser of the code blocks of a Markdown page and of the invisible comments that control their tests. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```\s*(\S*)\s*$")
_COMMENT = re.compile(r"<!--\s*(not run|setup python|setup):?\s*(.*?)\s*-->", re.DOTALL)
_SETUPS = {"setup": "bash", "setup python": "python"}
_INDENTED = re.compile(r"^ {4}\S")
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code. ``not_run`` is the reason why the tests skip it, ``line`` its first line, from 1."""

    language: str
    text: str
    line: int
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, and the possibly empty output that the page shows below it."""

    text: str
    output: str
    line: int


def blocks_of(page: str) -> Iterator[Block]:
    """Return the blocks of a page in order, including the text of ``setup`` and ``setup python`` comments.

    A ``not run`` comment applies to the next block.
    """
    lines = page.splitlines()
    number, reason = 0, None
    while number < len(lines):
        line = lines[number]
        if line.startswith("<!--"):
            end = next((i for i in range(number, len(lines)) if "-->" in lines[i]), len(lines) - 1)
            found = _COMMENT.fullmatch("\n".join(lines[number : end + 1]).strip())
            if found is not None and found[1] in _SETUPS:
                yield Block(_SETUPS[found[1]], found[2] + "\n", number + 2)
            elif found is not None:
                reason = " ".join(found[2].split())
            number = end
        elif fence := _FENCE.match(line):
            end = next((i for i in range(number + 1, len(lines)) if lines[i].rstrip() == "```"), len(lines))
            text = "".join(f"{line}\n" for line in lines[number + 1 : end])
            yield Block(fence[1], text, number + 2, reason)
            number, reason = end, None
        number += 1


def unfenced(page: str) -> list[int]:
    """Return the lines, from 1, at which merely indented blocks begin, which state no language."""
    inside, found, before = False, [], ""
    for number, line in enumerate(page.splitlines(), 1):
        inside ^= line.startswith("```")
        if not inside and not before.strip() and _INDENTED.match(line):
            found.append(number)
        before = line
    return found


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block, each of which begins with ``$``."""
    commands: list[Command] = []
    text, output, start = "", "", block.line
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith(_PROMPT):
            if text:
                commands.append(Command(text, output, start))
            text, output, start = line.removeprefix(_PROMPT) + "\n", "", number
        elif text.endswith("\\\n") and not output:
            text += line + "\n"
        else:
            output += line + "\n"
    return [*commands, Command(text, output, start)]
