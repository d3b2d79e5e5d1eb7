"""`Registry`: the connectors that are installed, and the validation of their configurations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from tidelog_connect.configuration import ConfigDef, ConfigException, ConfigValue
from tidelog_connect.connectors.connector import SINK, Connector
from tidelog_connect.connectors.datagen.source import DatagenConnector
from tidelog_connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from tidelog_connect.connectors.files.sink import FilesSinkConnector
from tidelog_connect.connectors.files.source import FilesSourceConnector
from tidelog_connect.connectors.http.sink import HttpSinkConnector
from tidelog_connect.connectors.jdbc import JdbcSinkConnector, JdbcSourceConnector
from tidelog_connect.connectors.shared_settings import TASKS_MAX, TOPICS, TOPICS_REGEX, shared_settings
from tidelog_connect.connectors.spark.sink import SparkSinkConnector
from tidelog_connect.connectors.spark.source import SparkSourceConnector
from tidelog_connect.connectors.step_settings import pipeline_of, settings_of_steps
from tidelog_connect.converters import CONVERTERS, HEADER_CONVERTERS
from tidelog_connect.errors import DEAD_LETTER_TOPIC
from tidelog_connect.herder.errors import RequestError, bad_request, not_found
from tidelog_connect.pipeline import Pipeline
from tidelog_connect.predicates import PREDICATES
from tidelog_connect.transforms.registry import TRANSFORMS

BUILT_IN: tuple[type[Connector], ...] = (
    FileStreamSinkConnector,
    FileStreamSourceConnector,
    JdbcSinkConnector,
    JdbcSourceConnector,
    FilesSinkConnector,
    FilesSourceConnector,
    DatagenConnector,
    HttpSinkConnector,
    SparkSinkConnector,
    SparkSourceConnector,
)
ENTRY_POINTS = "tidelog.connectors"
_OTHER_PLUGINS = (
    ("transformation", TRANSFORMS),
    ("predicate", PREDICATES),
    ("converter", CONVERTERS),
    ("header_converter", HEADER_CONVERTERS),
)
_CLASS = "connector.class"
_SUFFIX = "Connector"


class Registry:
    """Connectors by their classes, and the plugins that they name. ``version`` is that of all of them.

    ``converters`` are the worker's settings of converters, for connectors that name none.
    """

    def __init__(
        self, connectors: Iterable[type[Connector]], version: str, converters: Mapping[str, str] | None = None
    ) -> None:
        self._connectors = {each.class_name: each for each in connectors}
        self._version = version
        self._converters = converters or {}

    @classmethod
    def installed(cls, version: str, converters: Mapping[str, str] | None = None) -> Registry:
        """Return Tidelog's own connectors, and those of other installed packages.

        Raises:
            ConfigException: an entry point is not a connector.
        """
        found: list[type[Connector]] = [*BUILT_IN]
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
            loaded = point.load()
            if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
                raise ConfigException(f"The entry point {point.name} of {ENTRY_POINTS} is not a Connector: {loaded!r}")
            found.append(loaded)
        return cls(found, version, converters)

    def plugins(self, *, connectors_only: bool = True) -> list[dict[str, str]]:
        """Return the connectors, or all plugins, as GET /connector-plugins lists them."""
        kinds = [(each.class_name, each.kind) for each in self._connectors.values()]
        found = sorted(kinds)
        for kind, names in () if connectors_only else _OTHER_PLUGINS:
            found += [(name, kind) for name in sorted(names)]
        return [{"class": name, "type": kind, "version": self._version} for name, kind in found]

    def find(self, name: str) -> type[Connector]:
        """Return a connector by its class or an alias: the last part of the class, with or without ``Connector``.

        Raises:
            RequestError: 400, there is none.
        """
        for each in self._connectors.values():
            simple = each.class_name.rpartition(".")[2]
            if name in (each.class_name, simple, simple.removesuffix(_SUFFIX)):
                return each
        raise bad_request(
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors "
            f"are: {', '.join(each['class'] for each in self.plugins())}"
        )

    def kind(self, connector_class: str) -> str:
        """Return ``source`` or ``sink``.

        Raises:
            RequestError: 400, no such connector is installed.
        """
        return self.find(connector_class).kind

    def definitions(self, plugin: str) -> list[dict[str, object]]:
        """Return the settings of a plugin: its own, then, of a connector, those of all connectors of its kind.

        Raises:
            RequestError: 404, it is not installed.
        """
        for plugins in (TRANSFORMS, PREDICATES, CONVERTERS):
            if plugin in plugins.names:
                return [key.as_json() for key in plugins.find(plugin).config]
        try:
            connector = self.find(plugin)
        except RequestError as error:
            raise not_found(f"Unknown plugin {plugin}.") from error
        return [key.as_json() for key in self._config_def(connector, {}, own_first=True)]

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the entity ConfigInfos for a configuration.

        Raises:
            RequestError: 400, the plugin is not installed, or the configuration is for another one.
        """
        named = config.get(_CLASS)
        if named is None:
            raise bad_request(f"Connector config {dict(config)} contains no connector type")
        connector = self.find(named)
        if self.find(plugin) is not connector:
            raise bad_request(f"Included connector type {named} does not match request type {plugin}")
        definition, outcomes = self._outcomes(connector, config)
        values = list(outcomes.values())
        return {
            "name": named,
            "error_count": sum(len(each.errors) for each in values),
            "groups": definition.groups,
            "configs": [
                {"definition": definition.keys[each.name].as_json(), "value": each.as_json()}
                for each in values
                if each.name in definition.keys
            ]
            + [{"definition": None, "value": each.as_json()} for each in values if each.name not in definition.keys],
        }

    def errors(self, config: Mapping[str, str]) -> Sequence[str]:
        """Return the errors of a configuration.

        Raises:
            RequestError: 400, the connector is not installed.
        """
        _, outcomes = self._outcomes(self.find(config[_CLASS]), config)
        return [error for each in outcomes.values() for error in each.errors]

    def settings(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Return the parsed settings of a valid configuration, and those that belong to the connector by prefix.

        Raises:
            ValueError: the configuration is not valid.
        """
        try:
            connector = self.find(config[_CLASS])
            errors = self.errors(config)
            if errors:
                raise ValueError("; ".join(errors))
            return {**config, **self._config_def(connector, config).parse(config)}
        except RequestError as error:
            raise ValueError(error.message) from error
        except ConfigException as error:
            raise ValueError(str(error)) from error

    def pipeline(self, config: Mapping[str, str]) -> Pipeline:
        """Return the converters and transforms of a valid configuration. Needs a Spark session.

        Raises:
            ConfigException: a setting is not valid.
        """
        return pipeline_of(config, self._converters)

    def task_configs(self, config: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
        """Return the configurations of a connector's tasks.

        Raises:
            ValueError: the configuration is not valid.
        """
        settings = self.settings(config)
        connector = self.find(config[_CLASS])
        count = min(connector.tasks(settings), int(settings[TASKS_MAX]))
        return [{**config, "task.class": connector.task_class}] * count

    def _config_def(
        self, connector: type[Connector], config: Mapping[str, str | None], *, own_first: bool = False
    ) -> ConfigDef:
        parts = [shared_settings(connector.kind, self._version), settings_of_steps(config), connector.config()]
        return ConfigDef(key for part in (reversed(parts) if own_first else parts) for key in part)

    def _outcomes(
        self, connector: type[Connector], config: Mapping[str, str | None]
    ) -> tuple[ConfigDef, dict[str, ConfigValue]]:
        definition = self._config_def(connector, config)
        outcomes = definition.validate(config)
        if connector.kind == SINK:
            _check_topics(config, outcomes)
        for key in config:
            if key not in outcomes and not connector.is_own(key):
                near = difflib.get_close_matches(key, list(definition.keys), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                outcomes[key] = ConfigValue(key, config[key], errors=[f"Unknown configuration {key}{hint}"])
        if not any(each.errors for each in outcomes.values()):
            given = {**config, **{key: each.value for key, each in outcomes.items()}}
            for key, error in connector.check(given).items():
                outcomes[key].errors.append(error)
        return definition, outcomes


def _check_topics(config: Mapping[str, str | None], outcomes: Mapping[str, ConfigValue]) -> None:
    """Add the errors of a sink's topics (SinkConnectorConfig.validate)."""
    named, pattern = (config.get(TOPICS) or "").strip(), (config.get(TOPICS_REGEX) or "").strip()
    if bool(named) == bool(pattern):
        message = f"Must configure one of {TOPICS} or {TOPICS_REGEX}"
        if named:
            message = f"{TOPICS} and {TOPICS_REGEX} are mutually exclusive options, but both are set."
        for key in (TOPICS, TOPICS_REGEX):
            outcomes[key].errors.append(message)
    letters = (config.get(DEAD_LETTER_TOPIC) or "").strip()
    topics = [name.strip() for name in named.split(",")]
    if letters and letters in topics:
        outcomes[TOPICS].errors.append(
            f"The DLQ topic '{letters}' may not be included in the list of topics ('{TOPICS}=[{', '.join(topics)}]') "
            "consumed by the connector"
        )
    if letters and pattern and _matches(pattern, letters):
        outcomes[TOPICS_REGEX].errors.append(
            f"The DLQ topic '{letters}' may not be matched by the regex for the topics ('{TOPICS_REGEX}={pattern}') "
            "consumed by the connector"
        )


def _matches(pattern: str, topic: str) -> bool:
    """Tell whether a pattern matches a topic; a pattern that is not valid fails the connector when it starts."""
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False
