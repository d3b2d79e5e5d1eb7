"""The parser of a Markdown page's blocks."""

from __future__ import annotations

from document_blocks import Block, Command, blocks_of, commands_of, unfenced

PAGE = """\
# A page

```bash
one
```

<!-- a comment of another kind -->
<!-- not run: needs
     a machine -->
```text
two
```
<!-- setup
three
-->

- a list

    four

```
    five
```
"""


def test_blocks_have_their_language_their_first_line_and_the_reason_why_they_are_not_run() -> None:
    assert list(blocks_of(PAGE)) == [
        Block("bash", "one\n", 4),
        Block("text", "two\n", 11, "needs a machine"),
        Block("bash", "three\n", 14),
        Block("", "    five\n", 22),
    ]


def test_blocks_that_are_only_indented_are_found() -> None:
    assert unfenced(PAGE) == [19]


def test_console_block_has_commands_and_what_they_print() -> None:
    block = Block("console", "$ one \\\n    two\nshown\n$ three\n", 7)
    assert commands_of(block) == [Command("one \\\n    two\n", "shown\n", 7), Command("three\n", "", 10)]
