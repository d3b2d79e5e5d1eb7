"""Regular expressions over names, in RE2's syntax and matched in time linear in the length of the name.

A pattern comes from any client, and one coordinator serves many. A pattern such as ``(a+)+b`` could stop a
backtracking matcher such as Python's ``re``. Kafka uses RE2/J for the same reason (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

MAX_LENGTH: Final = 1_000
MAX_STATES: Final = 2_000
_MAX_MEMORY: Final = 256 * 1024
"""Bytes of a compiled pattern and of its cache of transitions. re2 keeps the last 128 patterns."""
_MAX_SHOWN: Final = 100


class NameRegex:
    """A compiled pattern that matches whole names.

    Raises:
        TidelogError: INVALID_REGULAR_EXPRESSION if the pattern is invalid, has more than 1000 characters, or needs more
            than 2000 states.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_LENGTH:
            raise _invalid(pattern, f"it has {len(pattern)} characters, and the limit is {MAX_LENGTH}")
        import re2  # takes 1 MB, which a node without patterns saves

        options = re2.Options()
        options.log_errors, options.never_capture, options.max_mem = False, True, _MAX_MEMORY
        try:
            compiled = re2.compile(pattern, options)
        except re2.error as error:
            reason = error.args[0]
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise _invalid(pattern, _shortened(text)) from None
        except UnicodeEncodeError:
            raise _invalid(pattern, "it is not Unicode text") from None
        if compiled.programsize > MAX_STATES:
            raise _invalid(pattern, f"it needs {compiled.programsize} states, and the limit is {MAX_STATES}")
        self._pattern = compiled

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, in order."""
        return [name for name in names if self.matches(name)]

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._pattern.fullmatch(name) is not None


def _invalid(pattern: str, why: str) -> TidelogError:
    return error_for(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {_shortened(pattern)!r} is invalid: {why}"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
