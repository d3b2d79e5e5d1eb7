"""The part of RE2's regular expression syntax that Python's ``re`` shares, over the characters of names.

It supports alternatives, groups (also named and with flags), the repetitions ``* + ? {n} {n,} {n,m}`` (also lazy ones,
which are equivalent when the whole name must match), classes with ranges, ``\\d \\w \\s`` and POSIX names,
``\\Q...\\E``, ``\\x41``, and the empty matches ``^ $ \\A \\z \\b \\B``. It does not support RE2's Unicode classes
``\\p{...}`` and octal escapes, nor back-references and look-around, which RE2 does not support either.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

MAX_LENGTH = 1_000
MAX_NESTING = 50
MAX_REPEAT = 1_000

TOPIC_ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names."""
OTHER = "\uffff"
"""Stands for all characters outside of an alphabet. It is a noncharacter of Unicode."""
_ASCII = frozenset(map(chr, range(128)))
WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {
    "d": frozenset(string.digits),
    "w": WORD,
    "s": frozenset("\t\n\f\r "),
}
_CONTROLS = dict(zip("afnrtv", "\a\f\n\r\t\v", strict=True))
_LOOKS = frozenset("AzbB")
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Look:
    """An empty match: ``A`` at the start, ``z`` at the end, ``b`` at a word boundary, ``B`` elsewhere."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes that follow one another."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several nodes."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node repeated from ``least`` to ``most`` times, without an upper limit if ``most`` is None."""

    node: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | Look | Sequence | Choice | Repeat


def invalid(pattern: str, why: str) -> TidelogError:
    """Return the error for an invalid pattern."""
    shown = pattern if len(pattern) <= 100 else pattern[:100] + "..."
    return error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {shown!r} is invalid: {why}")


def parse(pattern: str, alphabet: frozenset[str] = TOPIC_ALPHABET) -> Node:
    """Return the syntax tree of a pattern over names of these characters.

    Raises:
        TidelogError: INVALID_REGULAR_EXPRESSION, with the problem and its position.
    """
    if len(pattern) > MAX_LENGTH:
        raise invalid(pattern, f"it has {len(pattern)} characters, and the limit is {MAX_LENGTH}")
    return _Parser(pattern, alphabet).parse()


class _Parser:
    def __init__(self, pattern: str, alphabet: frozenset[str]) -> None:
        self._pattern = pattern
        self._alphabet = alphabet
        self._at = 0
        self._nesting = 0
        self._ignores_case = False

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise self._error("unexpected )")
        return node

    def _error(self, why: str) -> TidelogError:
        return invalid(self._pattern, f"{why} at {self._at}")

    def _sees(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        """Consume a text if it comes next, and return whether it did."""
        if not self._sees(text):
            return False
        self._at += len(text)
        return True

    def _next(self, what: str) -> str:
        if self._at == len(self._pattern):
            raise self._error(f"{what} is missing")
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str) -> str:
        found = self._pattern.find(end, self._at)
        if found < 0:
            raise self._error(f"{end} is missing")
        text = self._pattern[self._at : found]
        self._at = found + len(end)
        return text

    def _choice(self) -> Node:
        nodes = [self._sequence()]
        while self._takes("|"):
            nodes.append(self._sequence())
        return nodes[0] if len(nodes) == 1 else Choice(tuple(nodes))

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while self._at < len(self._pattern) and not self._sees("|") and not self._sees(")"):
            nodes.append(self._repeated())
        return Sequence(tuple(nodes))

    def _repeated(self) -> Node:
        node = self._one()
        times = self._times()
        if times is None:
            return node
        self._takes("?")
        if self._times() is not None:
            raise self._error("a repetition follows a repetition")
        return Repeat(node, *times)

    def _times(self) -> tuple[int, int | None] | None:
        """Consume a repetition and return its limits, or None without one."""
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return times
        end = self._pattern.find("}", self._at)
        if not self._sees("{") or end < 0:
            return None
        least, comma, most = self._pattern[self._at + 1 : end].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            # As in RE2, a brace without numbers is a literal character.
            return None
        self._at = end + 1
        least_times = int(least)
        most_times = least_times if not comma else int(most) if most else None
        if max(least_times, most_times or 0) > MAX_REPEAT:
            raise self._error(f"more than {MAX_REPEAT} repetitions")
        if most_times is not None and least_times > most_times:
            raise self._error(f"a repetition from {least_times} to {most_times}")
        return least_times, most_times

    def _one(self) -> Node:
        if self._sees("*") or self._sees("+") or self._sees("?"):
            raise self._error("nothing to repeat")
        char = self._next("a character")
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                return Chars(self._alphabet)
            case "^":
                return Look("A")
            case "$":
                return Look("z")
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> Chars:
        return Chars(_both_cases({char}) if self._ignores_case else frozenset(char))

    def _group(self) -> Node:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} groups in each other")
        outer_case = self._ignores_case
        if self._takes("?") and not self._begin_special():
            # The flags apply to the end of the enclosing group.
            self._nesting -= 1
            return Sequence(())
        node = self._choice()
        if not self._takes(")"):
            raise self._error(") is missing")
        self._ignores_case = outer_case
        self._nesting -= 1
        return node

    def _begin_special(self) -> bool:
        """Consume the text after ``(?``. Return True if a group follows and False if it only set flags."""
        if self._takes("P<") or (
            self._sees("<") and not self._sees("<=") and not self._sees("<!") and self._takes("<")
        ):
            name = self._until(">")
            if not name or not set(name) <= WORD:
                raise self._error(f"the name {name!r} of a group")
            return True
        sets = True
        while True:
            match self._next("a flag"):
                case "i":
                    self._ignores_case = sets
                case "m" | "s" | "U":
                    # Flags for lines and greediness have no effect, since a name is one line and matches as a whole.
                    pass
                case "-" if sets:
                    sets = False
                case ":":
                    return True
                case ")":
                    return False
                case other:
                    raise self._error(f"(?{other} is not supported")

    def _escape(self) -> Node:
        if self._takes("Q"):
            end = self._pattern.find("\\E", self._at)
            text = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
            self._at = len(self._pattern) if end < 0 else end + 2
            return Sequence(tuple(self._literal(char) for char in text))
        if self._at < len(self._pattern) and self._pattern[self._at] in _LOOKS:
            return Look(self._next("an escape"))
        chars = self._escaped()
        return Chars(_both_cases(chars) if self._ignores_case else chars)

    def _escaped(self) -> frozenset[str]:
        """Return the characters of an escape, inside or outside a class."""
        char = self._next("an escape")
        if char.lower() in _CLASSES:
            chars = _CLASSES[char.lower()]
            return chars if char.islower() else self._alphabet - chars
        if char in _CONTROLS:
            return frozenset(_CONTROLS[char])
        if char == "x":
            digits = self._until("}") if self._takes("{") else self._next("a digit") + self._next("a digit")
            if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise self._error(f"\\x{digits}")
            char = chr(int(digits, 16))
            if OTHER in self._alphabet and char not in self._alphabet:
                raise self._error(f"\\x{digits} beyond ASCII is not supported")
            return frozenset(char)
        if char.isascii() and char.isalnum():
            raise self._error(f"\\{char} is not supported")
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        negated = self._takes("^")
        chars: set[str] = set()
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            chars |= self._class_item()
        if self._ignores_case:
            chars = set(_both_cases(chars))
        return self._alphabet - chars if negated else frozenset(chars)

    def _class_item(self) -> frozenset[str]:
        if self._takes("[:"):
            negated, name = self._takes("^"), self._until(":]")
            if name not in _POSIX:
                raise self._error(f"the class [:{name}:]")
            return self._alphabet - _POSIX[name] if negated else _POSIX[name]
        first = self._class_char()
        if not self._sees("-") or self._sees("-]"):
            return first
        self._at += 1
        last = self._class_char()
        if len(first) != 1 or len(last) != 1 or max(first) > min(last):
            raise self._error("the range of a class")
        if OTHER in self._alphabet and not max(last).isascii():
            raise self._error("a range of a class beyond ASCII is not supported")
        return frozenset(char for char in self._alphabet if min(first) <= char <= min(last))

    def _class_char(self) -> frozenset[str]:
        char = self._next("]")
        return self._escaped() if char == "\\" else frozenset(char)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _both_cases(chars: set[str] | frozenset[str]) -> frozenset[str]:
    return frozenset(cased for char in chars for cased in (char, char.lower(), char.upper()))
