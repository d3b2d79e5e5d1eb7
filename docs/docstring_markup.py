"""A Griffe extension: reads the few reStructuredText marks of our docstrings as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|exc):`~?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")
_BLOCK = re.compile(r"^\s*::\n", re.MULTILINE)


class DocstringMarkup(griffe.Extension):
    """Rewrites the docstring of every loaded object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Replace roles, literals and the mark of a code block."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _LITERAL.sub(r"`\1`", _BLOCK.sub("", text))
