"""`Plugins`: the classes of one kind that settings name, such as transforms, with the settings of each (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog_connect.configuration import ConfigDef, ConfigException

Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True, slots=True)
class Plugin(Generic[Made]):
    """A class by the name that Kafka gives it, its settings, and the object of parsed settings."""

    class_name: str
    config: ConfigDef
    create: Callable[[Mapping[str, object]], Made]

    @property
    def alias(self) -> str:
        """The name without its package."""
        return self.class_name.rpartition(".")[2]


class Plugins(Mapping[str, Plugin[Made]]):
    """The plugins of a kind by the names of their classes. ``setting`` is the one that names a plugin.

    `find` also takes aliases: the name without the package, and that without ``suffix``, as in Kafka.
    """

    def __init__(self, plugins: Iterable[Plugin[Made]], setting: str, suffix: str) -> None:
        self._setting = setting
        self._plugins = {plugin.class_name: plugin for plugin in plugins}
        self._by_alias = {plugin.alias: plugin for plugin in self._plugins.values()}
        self._by_alias |= {name.removesuffix(suffix): plugin for name, plugin in self._by_alias.items()}

    def __getitem__(self, class_name: str) -> Plugin[Made]:
        return self._plugins[class_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plugins)

    def __len__(self) -> int:
        return len(self._plugins)

    @property
    def names(self) -> frozenset[str]:
        """All names that `find` takes."""
        return frozenset((*self._plugins, *self._by_alias))

    def find(self, name: str) -> Plugin[Made]:
        """Return a plugin by the name of its class or an alias.

        Raises:
            ConfigException: there is no such plugin.
        """
        plugin = self._plugins.get(name) or self._by_alias.get(name)
        if plugin is None:
            raise ConfigException.of(self._setting, name, f"Class {name} could not be found.")
        return plugin
