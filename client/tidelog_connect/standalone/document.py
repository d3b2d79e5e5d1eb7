"""`Document`: the YAML file of a pipeline, with the line and column of each setting (pure).

A setting is text, as in a JSON configuration: ``1`` and ``true`` are as they are written, a list is joined by commas,
and a mapping continues the name: ``transforms.route: {type: RegexRouter}`` is ``transforms.route.type``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

_NAME, _SETTINGS, _CONNECTORS = "name", "settings", "connectors"
_PARTS = (_NAME, _SETTINGS, _CONNECTORS)
_NULL = "tag:yaml.org,2002:null"
_VALID_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MAX_DEPTH = 20


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file. Line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a setting and the place of its name."""

    value: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Section:
    """Settings by their names, and the place of the section."""

    mark: Mark
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """The values by the names of the settings."""
        return {key: each.value for key, each in self.settings.items()}

    def mark_of(self, key: str) -> Mark:
        """Return the place of a setting, or that of the section without it."""
        return self.settings[key].mark if key in self.settings else self.mark


@dataclass(frozen=True, slots=True)
class Document:
    """A pipeline: its name, the settings of the worker, and the configurations of connectors by their names."""

    name: str
    settings: Section
    connectors: Mapping[str, Section]


class PipelineError(ValueError):
    """Errors of a pipeline's file, each with its place."""

    def __init__(self, problems: Sequence[tuple[Mark, str]]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = tuple(sorted(problems))

    def lines(self, file: str) -> list[str]:
        """Return the errors in the form FILE:LINE:COLUMN: TEXT."""
        return [f"{file}:{mark.line}:{mark.column}: {text}" for mark, text in self.problems]


def parse_document(text: str) -> Document:
    """Return the pipeline of a YAML text.

    Raises:
        PipelineError: the text is not YAML, or not a pipeline.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        raise PipelineError([(_mark(place), f"Not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise PipelineError([(Mark(1, 1), f"Not YAML: {error}")]) from error
    return _Reader().document(root)


class _Reader:
    """Collects the errors of one document, so that all are reported at once."""

    def __init__(self) -> None:
        self._problems: list[tuple[Mark, str]] = []

    def document(self, root: yaml.Node | None) -> Document:
        parts = dict(self._entries(root, "A pipeline"))
        top = Mark(1, 1)
        for key, (mark, _) in parts.items():
            if key not in _PARTS:
                near = difflib.get_close_matches(key, _PARTS, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._add(mark, f"Unknown part {key}: a pipeline has {', '.join(_PARTS)}{hint}")
        name = self._name(parts.get(_NAME), top)
        settings = self._section(*parts[_SETTINGS]) if _SETTINGS in parts else Section(top)
        connectors: dict[str, Section] = {}
        if _CONNECTORS in parts:
            mark, node = parts[_CONNECTORS]
            connectors = {key: self._section(*each) for key, each in self._entries(node, _CONNECTORS)}
            if not connectors:
                self._add(mark, "A pipeline needs at least one connector")
        elif root is not None and not self._problems:
            self._add(top, "A pipeline needs connectors: a mapping from names to configurations")
        if self._problems:
            raise PipelineError(self._problems)
        return Document(name, settings, connectors)

    def _name(self, entry: tuple[Mark, yaml.Node] | None, top: Mark) -> str:
        mark, node = entry or (top, None)
        if not isinstance(node, yaml.ScalarNode) or not _VALID_NAME.fullmatch(node.value):
            self._add(mark, f"A pipeline needs a name of at most 200 letters, digits and ._-{_found(node)}")
            return ""
        return str(node.value)

    def _section(self, mark: Mark, node: yaml.Node) -> Section:
        found: dict[str, Setting] = {}
        for key, place, value in self._settings(node, "", 0):
            if key in found:
                self._add(place, f"{key} is given twice; the first is in line {found[key].mark.line}")
            found[key] = Setting(value, place)
        return Section(mark, found)

    def _settings(self, node: yaml.Node, prefix: str, depth: int) -> Iterator[tuple[str, Mark, str]]:
        if depth > _MAX_DEPTH:
            self._add(_mark(node.start_mark), f"Mappings are nested deeper than {_MAX_DEPTH}")
            return
        for key, (mark, child) in self._entries(node, prefix.rstrip(".") or "This section"):
            if isinstance(child, yaml.MappingNode):
                yield from self._settings(child, f"{prefix}{key}.", depth + 1)
            else:
                yield prefix + key, mark, self._text(prefix + key, child)

    def _text(self, key: str, node: yaml.Node) -> str:
        if isinstance(node, yaml.SequenceNode):
            for each in node.value:
                if not isinstance(each, yaml.ScalarNode) or "," in each.value or each.tag == _NULL:
                    self._add(_mark(each.start_mark), f"An item of {key} must be a text without a comma{_found(each)}")
                    return ""
            return ",".join(each.value for each in node.value)
        if node.tag == _NULL:
            self._add(_mark(node.start_mark), f"{key} has no value; leave it out, or write ''")
        return str(node.value)

    def _entries(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, tuple[Mark, yaml.Node]]]:
        if not isinstance(node, yaml.MappingNode):
            mark = Mark(1, 1) if node is None else _mark(node.start_mark)
            self._add(mark, f"{what} must be a mapping{_found(node)}")
            return
        seen: set[str] = set()
        for key, value in node.value:
            mark = _mark(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self._add(mark, f"A name must be a text{_found(key)}")
            elif key.value in seen:
                self._add(mark, f"{key.value} is given twice")
            else:
                seen.add(key.value)
                yield key.value, (mark, value)

    def _add(self, mark: Mark, text: str) -> None:
        self._problems.append((mark, text))


def _found(node: yaml.Node | None) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f", not {node.value!r}"
    return "" if node is None else f", not a {'mapping' if isinstance(node, yaml.MappingNode) else 'list'}"


def _mark(place: yaml.Mark | None) -> Mark:
    return Mark(1, 1) if place is None else Mark(place.line + 1, place.column + 1)
