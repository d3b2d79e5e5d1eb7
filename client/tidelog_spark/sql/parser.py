"""Parses scripts of statements. It reads Tidelog's own statements whole, and of Spark SQL only the ends. Pure.

sqlglot splits the text into tokens as Spark does, so that strings, quoted names and comments may contain anything. A
position in an error counts lines and characters from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot.tokens import Token, TokenType

from tidelog_spark.sql.definitions import METADATA_TYPES, Column, Kind, OutputMode, Part, Watermark
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.statements import (
    CreateAs,
    CreateQuery,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    Insert,
    Show,
    SparkStatement,
    Statement,
    Steer,
)
from tidelog_spark.sql.tokens import tokenize
from tidelog_spark.sql.types import parse_type

MAX_STATEMENT_LENGTH = 1_000_000
_OBJECTS = ("STREAMS", "TABLES", "TOPICS", "QUERIES")
_ACTIONS = ("TERMINATE", "PAUSE", "RESUME")
_KINDS = tuple(kind.name for kind in Kind)


def parse_script(text: str) -> list[Statement]:
    """Return the statements of a text, which semicolons separate.

    Raises:
        SqlError: the text is too long, does not end where it must, or is none of Tidelog's statements though it begins
            like one.
    """
    if len(text) > MAX_STATEMENT_LENGTH:
        raise SqlError(f"the script has {len(text)} characters; at most {MAX_STATEMENT_LENGTH} are possible")
    return [_statement(_Reader(text, part)) for part in _parts(tokenize(text))]


def is_complete(text: str) -> bool:
    """Return whether the text ends with a semicolon, outside of strings, quoted names and comments."""
    try:
        tokens = tokenize(text)
    except SqlError:
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def _parts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    part: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            part.append(token)
        elif part:
            yield part
            part = []
    if part:
        yield part


@dataclass(slots=True)
class _Reader:
    """The tokens of one statement, and the next of them."""

    text: str
    tokens: list[Token]
    next: int = field(default=0)

    def peek(self, *words: str) -> bool:
        """Return whether these words come next."""
        return self._behind(words) is not None

    def take(self, *words: str) -> bool:
        """Read these words if they come next."""
        behind = self._behind(words)
        if behind is None:
            return False
        self.next = behind
        return True

    def choose(self, choices: Sequence[str]) -> str | None:
        """Read and return the one of the words that comes next, if any does."""
        return next((word for word in choices if self.take(word)), None)

    def expect(self, *words: str) -> None:
        """Read these words, which must come next."""
        if not self.take(*words):
            raise self.error(f"expected {' '.join(words)}")

    def name(self, of: str) -> str:
        """Read a name, which may be in backticks."""
        token = self._any(f"expected {of}")
        is_word = token.text.replace("_", "a").isalnum() and not token.text[0].isdigit()
        if token.token_type is not TokenType.IDENTIFIER and (_is_quoted(token) or not is_word):
            self.next -= 1
            raise self.error(f"expected {of}")
        if self._continues(token):
            raise self.error(f"put {of} in backticks, as it is not a plain word")
        return token.text

    def literal(self, of: str) -> str:
        """Read a string, a number or a word."""
        token = self._any(f"expected {of}")
        if token.token_type not in (TokenType.STRING, TokenType.NUMBER) and not token.text.isalnum():
            self.next -= 1
            raise self.error(f"expected {of}")
        return token.text

    def names_in_parentheses(self, of: str) -> tuple[str, ...]:
        """Read names between parentheses."""
        self.expect("(")
        names = [self.name(of)]
        while self.take(","):
            names.append(self.name(of))
        self.expect(")")
        return tuple(names)

    def rest(self, of: str) -> str:
        """Read everything up to the end, as it is written."""
        if self.is_done:
            raise self.error(f"expected {of}")
        first, last = self.tokens[self.next], self.tokens[-1]
        self.next = len(self.tokens)
        return self.text[first.start : last.end + 1]

    def span(self, first: int) -> str:
        """Return the text from a token to the last one that was read."""
        return self.text[self.tokens[first].start : self.tokens[self.next - 1].end + 1]

    def end(self) -> None:
        """Check that nothing is left."""
        if not self.is_done:
            raise self.error("expected the end of the statement")

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self.next >= len(self.tokens)

    def error(self, expected: str) -> SqlError:
        """Return an error at the next token."""
        if self.is_done:
            return SqlError(f"{expected} at the end of: {self.text[self.tokens[0].start :][:60].strip()}")
        token = self.tokens[self.next]
        before = self.text[: token.start]
        line, position = before.count("\n") + 1, token.start - (before.rfind("\n") + 1) + 1
        return SqlError(f"line {line}, position {position}: {expected}, found {self._text()}")

    def _behind(self, words: Sequence[str]) -> int | None:
        """Return the index behind these words if they come next; a token may have two, such as PRIMARY KEY."""
        found: list[str] = []
        index = self.next
        while len(found) < len(words) and index < len(self.tokens) and not _is_quoted(self.tokens[index]):
            found += self.tokens[index].text.upper().split()
            index += 1
        return index if found == [*words] else None

    def _any(self, expected: str) -> Token:
        if self.is_done:
            raise self.error(expected)
        self.next += 1
        return self.tokens[self.next - 1]

    def _continues(self, token: Token) -> bool:
        """Return whether a dot or a hyphen follows without a space, which a plain name cannot contain."""
        if self.is_done or self.tokens[self.next].start != token.end + 1:
            return False
        return self._text() in (".", "-") and not self.peek("-", "INTERVAL")

    def _text(self) -> str:
        token = self.tokens[self.next]
        return self.text[token.start : token.end + 1]


def _is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)


def _statement(reader: _Reader) -> Statement:
    created = _create(reader)
    if created is not None:
        return created
    if reader.take("DROP", "QUERY"):
        raise SqlError("a query ends with TERMINATE name")
    if reader.peek("DROP", "STREAM") or reader.peek("DROP", "TABLE"):
        return _drop(reader)
    if reader.take("SHOW") or reader.take("LIST"):
        what = reader.choose(_OBJECTS)
        if what is not None and reader.is_done:
            return Show(what)
    elif reader.peek("INSERT", "INTO"):
        return _insert(reader)
    elif (action := reader.choose(_ACTIONS)) is not None:
        steer = Steer(action, reader.name("the name of a query"))
        reader.end()
        return steer
    elif reader.take("DESCRIBE") or reader.take("DESC"):
        if len(reader.tokens) == reader.next + 1:
            return Describe(reader.name("the name of a stream, table, query or topic"))
    elif reader.take("EXPLAIN"):
        if len(reader.tokens) == reader.next + 1:
            return Explain(query=reader.name("the name of a query"))
        return Explain(reader.rest("a query"))
    reader.next = 0
    mode = _emit(reader)
    return SparkStatement(reader.rest("a statement"), mode)


def _create(reader: _Reader) -> Statement | None:
    if not reader.take("CREATE"):
        return None
    is_replacing = reader.take("OR", "REPLACE")
    word = reader.choose((*_KINDS, "QUERY"))
    if word is None:
        reader.next = 0
        return None
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    if is_replacing and if_not_exists:
        raise SqlError("OR REPLACE and IF NOT EXISTS exclude each other")
    name = reader.name(f"the name of a {word.lower()}")
    if word == "QUERY":
        return replace(_create_query(reader, name), is_replacing=is_replacing, if_not_exists=if_not_exists)
    kind = Kind[word]
    columns, watermark = _columns(reader) if reader.peek("(") else ((), None)
    options = _options(reader)
    made: CreateAs | CreateRelation
    if reader.peek("AS") and not columns:
        reader.take("AS")
        mode = _emit(reader)
        made = CreateAs(name, kind, reader.rest("a query"), mode, options=options)
    else:
        reader.end()
        made = CreateRelation(name, kind, columns, watermark, options=options)
    return replace(made, is_replacing=is_replacing, if_not_exists=if_not_exists)


def _create_query(reader: _Reader, name: str) -> CreateQuery:
    options = _options(reader)
    reader.expect("AS")
    mode = _emit(reader)
    return CreateQuery(name, _insert(reader), mode, options=options)


def _columns(reader: _Reader) -> tuple[tuple[Column, ...], Watermark | None]:
    columns: list[Column] = []
    watermark = None
    reader.expect("(")
    while True:
        if reader.take("WATERMARK", "FOR"):
            if watermark is not None:
                raise SqlError("a stream has one WATERMARK at most")
            watermark = _watermark(reader)
        else:
            columns.append(_column(reader))
        if not reader.take(","):
            break
    reader.expect(")")
    return tuple(columns), watermark


def _column(reader: _Reader) -> Column:
    name = reader.name("the name of a column")
    type_name, reader.next = parse_type(reader.tokens, reader.next)
    if reader.take("PRIMARY", "KEY") or reader.take("KEY"):
        return Column(name, type_name, Part.KEY)
    if reader.take("METADATA"):
        metadata = (
            reader.literal("the name of metadata, as in METADATA FROM 'timestamp'") if reader.take("FROM") else name
        )
        if metadata not in METADATA_TYPES:
            raise SqlError(f"column {name}: there is no metadata {metadata!r}; there is {', '.join(METADATA_TYPES)}")
        return Column(name, type_name, Part.METADATA, metadata)
    return Column(name, type_name)


def _watermark(reader: _Reader) -> Watermark:
    column = reader.name("the name of a column")
    reader.expect("AS")
    if reader.name("the column of the watermark").lower() != column.lower():
        reader.next -= 1
        raise reader.error(f"expected {column}, the column of the watermark,")
    if not reader.take("-"):
        return Watermark(column, "0 SECONDS")
    reader.expect("INTERVAL")
    delay = reader.literal("an interval such as INTERVAL '10' SECONDS")
    if not (reader.peek(",") or reader.peek(")")):
        delay = f"{delay} {reader.literal('the unit of the interval').upper()}"
    return Watermark(column, delay)


def _options(reader: _Reader) -> dict[str, str]:
    options: dict[str, str] = {}
    if not reader.take("WITH"):
        return options
    reader.expect("(")
    while not reader.take(")"):
        first = reader.next
        reader.literal("the name of an option")
        while reader.take("."):
            reader.literal("the name of an option")
        token = reader.tokens[first]
        key = (token.text if _is_quoted(token) else reader.span(first)).lower()
        reader.expect("=")
        if key in options:
            raise SqlError(f"the option {key} is given twice")
        options[key] = reader.literal(f"a value of {key}")
        if not reader.peek(")"):
            reader.expect(",")
    return options


def _insert(reader: _Reader) -> Insert:
    reader.expect("INSERT", "INTO")
    reader.take("TABLE")
    target = reader.name("the name of a stream, table or topic")
    columns: tuple[str, ...] = ()
    if reader.peek("(") and not reader.peek("(", "SELECT"):
        columns = reader.names_in_parentheses("the name of a column")
    return Insert(target, reader.rest("a query, or VALUES"), columns)


def _drop(reader: _Reader) -> Drop:
    reader.take("DROP")
    kind = Kind[reader.choose(_KINDS) or ""]
    if_exists = reader.take("IF", "EXISTS")
    drop = Drop(kind, reader.name(f"the name of a {kind}"), if_exists)
    reader.end()
    return drop


def _emit(reader: _Reader) -> OutputMode | None:
    """Remove EMIT CHANGES or EMIT FINAL from the end of the statement, and return its mode."""
    ends = [token.text.upper() for token in reader.tokens[-2:] if not _is_quoted(token)]
    if len(ends) < 2 or ends[0] != "EMIT" or ends[1] not in OutputMode.__members__ or len(reader.tokens) < 3:
        return None
    reader.tokens = reader.tokens[:-2]
    return OutputMode[ends[1]]
