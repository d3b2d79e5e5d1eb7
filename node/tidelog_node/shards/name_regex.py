"""Regular expressions over names, matched in time linear in the length of the name.

A pattern comes from any client, and one coordinator serves many. A pattern such as ``(a+)+b`` could stop a
backtracking matcher such as Python's ``re``. Like RE2, this module simulates an automaton on sets of states without
backtracking and caches the transitions of each set.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.shards.regex_syntax import (
    OTHER,
    TOPIC_ALPHABET,
    WORD,
    Chars,
    Choice,
    Look,
    Node,
    Repeat,
    Sequence,
    invalid,
    parse,
)

MAX_STATES = 1_000
_MAX_CACHED = 10_000

_End = str | None
_Place = tuple[frozenset[int], _End]
"""The states before their empty matches are followed, and the previous character, None at the start."""


_PRINTABLE = frozenset(map(chr, range(32, 127)))


class NameRegex:
    """A compiled pattern that matches whole names.

    Names of topics have few characters. With ``is_any_text``, names may have all characters.

    Raises:
        TidelogError: INVALID_REGULAR_EXPRESSION, see :func:`.regex_syntax.parse`, or if it needs more than 1000 states.
    """

    def __init__(self, pattern: str, *, is_any_text: bool = False) -> None:
        texts = _PRINTABLE.union(pattern, pattern.lower(), pattern.upper(), {OTHER})
        self._alphabet = texts if is_any_text else TOPIC_ALPHABET
        self._program = _Program(pattern, parse(pattern, self._alphabet))
        self._is_any_text = is_any_text
        self._followers: dict[tuple[frozenset[int], _End, str], frozenset[int]] = {}

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, in order."""
        return [name for name in names if self.matches(name)]

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        states, before = self._program.start, None
        for char in self._known(name):
            key = states, _kind(before), char
            following = self._followers.get(key)
            if following is None:
                following = self._program.step(states, before, char)
                if len(self._followers) >= _MAX_CACHED:
                    self._followers.clear()
                self._followers[key] = following
            if not following:
                return False
            states, before = following, char
        return self._program.accepts(states, before)

    def _known(self, name: str) -> Iterable[str]:
        """Return the characters of a name, with OTHER for those outside of the alphabet."""
        return (c if c in self._alphabet else OTHER for c in name) if self._is_any_text else name


def _kind(char: _End) -> _End:
    """Return one representative for all characters that empty matches treat alike."""
    return None if char is None else "w" if char in WORD else "."


class _Program:
    """The states of the automaton.

    Each has characters and one successor, an empty match, or neither and any successors.
    """

    def __init__(self, pattern: str, node: Node) -> None:
        self._pattern = pattern
        self._chars: list[frozenset[str] | None] = []
        self._looks: list[str | None] = []
        self._next: list[tuple[int, ...]] = []
        self._accepting = self._add()
        self.start = frozenset((self._compile(node, self._accepting),))

    def _add(self, *following: int, chars: frozenset[str] | None = None, look: str | None = None) -> int:
        if len(self._next) == MAX_STATES:
            raise invalid(self._pattern, f"it needs more than {MAX_STATES} states")
        self._chars.append(chars)
        self._looks.append(look)
        self._next.append(following)
        return len(self._next) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Add the states of a node, followed by the state ``then``, and return the first."""
        match node:
            case Chars(chars):
                return self._add(then, chars=chars)
            case Look(kind):
                return self._add(then, look=kind)
            case Sequence(nodes):
                for part in reversed(nodes):
                    then = self._compile(part, then)
                return then
            case Choice(nodes):
                return self._add(*[self._compile(part, then) for part in nodes])
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, then)

    def _compile_repeat(self, node: Node, least: int, most: int | None, then: int) -> int:
        end = then
        if most is None:
            then = self._add()
            self._next[then] = (self._compile(node, then), end)
        for _ in range((most or least) - least):
            then = self._add(self._compile(node, then), end)
        for _ in range(least):
            first = self._compile(node, then)
            if first == then:
                # The node is empty, so another repetition adds nothing.
                break
            then = first
        return then

    def step(self, states: frozenset[int], before: _End, char: str) -> frozenset[int]:
        """Return the states after a character."""
        return frozenset(
            self._next[state][0]
            for state in self._closure(states, before, char)
            if (chars := self._chars[state]) is not None and char in chars
        )

    def accepts(self, states: frozenset[int], before: _End) -> bool:
        """Return whether the name may end in these states."""
        return self._accepting in self._closure(states, before, None)

    def _closure(self, states: frozenset[int], before: _End, after: _End) -> set[int]:
        """Return the states reachable without a character between two characters.

        None stands for the start or the end.
        """
        reached = set(states)
        pending = list(states)
        while pending:
            state = pending.pop()
            look = self._looks[state]
            if self._chars[state] is None and (look is None or _holds(look, before, after)):
                new = [following for following in self._next[state] if following not in reached]
                reached.update(new)
                pending.extend(new)
        return reached


def _holds(look: str, before: _End, after: _End) -> bool:
    match look:
        case "A":
            return before is None
        case "z":
            return after is None
        case _:
            is_boundary = (before in WORD) != (after in WORD)
            return is_boundary == (look == "b")
