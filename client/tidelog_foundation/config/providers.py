"""Config providers: references such as ``${file:/path:key}`` in settings, replaced by values from elsewhere (KIP-297).

``config.providers=vault`` with ``config.providers.vault.class`` declares a provider under a name of its own, and
``config.providers.vault.param.<name>`` has its parameters. Servers and the command line also know the providers
``file``, ``env`` and ``dir`` without a declaration. Kafka's ConfigTransformer leaves a reference that it cannot replace
in the value; here it is an error, because the reference itself would become a password. A value from a provider is not
resolved again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidelog_foundation.config.settings import ProvidedText
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_text

PROVIDERS: Final = "config.providers"
AUTOMATIC_VARIABLE: Final = "TIDELOG_AUTOMATIC_CONFIG_PROVIDERS"
"""The provider classes that clients may use, separated by commas, or ``none``; all of them if it is not set.

Kafka's system property ``org.apache.kafka.automatic.config.providers``: a program that takes the settings of a client
from others keeps them from reading its files and variables."""
_REFERENCE: Final = re.compile(r"\$\{([^{}:\n]+):(?:([^}:\n]*):)?([^}\n]*)\}")
_KAFKAS_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_MAX_FILE_BYTES: Final = 4 * 1024**2
_Parameters: TypeAlias = Mapping[str, str]
_Provider: TypeAlias = Callable[[str, str], str]
"""Return the value of a path and a key; raise ConfigError without a value in the message."""


def resolve_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a server or of the command line with the values of their references.

    The declarations of providers are not among them. A value with a reference becomes a :class:`ProvidedText`.

    Raises:
        ConfigError: A declaration is invalid, or a reference has no value. The message names the reference.
    """
    return _resolve(settings, {name: _provider(name, kind, {}) for name, kind in _BUILT_IN.items()})


def resolve_client_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a client with the values of the references to the providers that they declare.

    Without ``config.providers``, values are literal, as in confluent-kafka.

    Raises:
        ConfigError: As with :func:`resolve_settings`, or the process does not permit the class of a provider.
    """
    if PROVIDERS not in settings:
        return dict(settings)
    return _resolve(settings, {}, _permitted_classes())


def is_declaration(key: str) -> bool:
    """Return True if a setting declares config providers."""
    return key == PROVIDERS or key.startswith(f"{PROVIDERS}.")


def has_reference(value: str) -> bool:
    """Return True if a value contains a reference to a provider."""
    return _REFERENCE.search(value) is not None


def _resolve(
    settings: Mapping[str, Any], providers: dict[str, _Provider], permitted: frozenset[str] | None = None
) -> dict[str, Any]:
    own = {key: value for key, value in settings.items() if not is_declaration(key)}
    declarations = {key: str(value) for key, value in settings.items() if is_declaration(key)}
    providers = providers | _declared_providers(declarations, permitted)
    return {key: _replaced(key, value, providers) if isinstance(value, str) else value for key, value in own.items()}


def _declared_providers(declarations: Mapping[str, str], permitted: frozenset[str] | None) -> dict[str, _Provider]:
    left = dict(declarations)
    names = [name.strip() for name in left.pop(PROVIDERS, "").split(",") if name.strip()]
    providers = {}
    for name in names:
        class_key, prefix = f"{PROVIDERS}.{name}.class", f"{PROVIDERS}.{name}.param."
        kind = _class_of(name, left.pop(class_key, None), class_key)
        if permitted is not None and kind not in permitted:
            raise ConfigError(f"{class_key}={kind} is not permitted by {AUTOMATIC_VARIABLE} of this process")
        parameters = {key.removeprefix(prefix): left.pop(key) for key in list(left) if key.startswith(prefix)}
        providers[name] = _provider(name, kind, parameters)
    for key in left:
        raise ConfigError(f'unknown configuration "{key}": {PROVIDERS} declares {", ".join(names) or "no provider"}')
    return providers


def _class_of(name: str, given: str | None, class_key: str) -> str:
    if given is None:
        if name not in _BUILT_IN:
            raise ConfigError(f'missing required configuration "{class_key}": the class of a provider of {PROVIDERS}')
        return _BUILT_IN[name]
    kind = given.strip().removeprefix(_KAFKAS_PACKAGE)
    if kind not in _KINDS:
        known = ", ".join(_KAFKAS_PACKAGE + k for k in _KINDS)
        raise ConfigError(f'invalid value {given!r} for configuration "{class_key}": must be one of {known}')
    return kind


def _permitted_classes() -> frozenset[str] | None:
    given = os.environ.get(AUTOMATIC_VARIABLE)
    if given is None:
        return None
    return frozenset(part.strip().removeprefix(_KAFKAS_PACKAGE) for part in given.split(","))


def _provider(name: str, kind: str, parameters: _Parameters) -> _Provider:
    parameter, build = _KINDS[kind]
    for key in parameters:
        if key != parameter:
            raise ConfigError(f'unknown configuration "{PROVIDERS}.{name}.param.{key}": {kind} has only "{parameter}"')
    return build(f"{PROVIDERS}.{name}.param.{parameter}", parameters.get(parameter, ""))


def _replaced(key: str, value: str, providers: Mapping[str, _Provider]) -> str:
    if not has_reference(value):
        return value

    def value_of(found: re.Match[str]) -> str:
        name, path, variable = found[1], found[2] or "", found[3]
        try:
            if name not in providers:
                known = ", ".join(providers)
                raise ConfigError(
                    f'there is no config provider "{name}"; {PROVIDERS} and the built-in ones are {known}'
                )
            return providers[name](path, variable)
        except ConfigError as error:
            raise ConfigError(f'cannot resolve {found[0]} in configuration "{key}": {error.message}') from None

    return ProvidedText(_REFERENCE.sub(value_of, value))


def _file_provider(parameter: str, allowed_paths: str) -> _Provider:
    allowed = _allowed_paths(parameter, allowed_paths)

    def get(path: str, key: str) -> str:
        # The import is local because clients without references do not need javaproperties.
        try:
            import javaproperties
        except ModuleNotFoundError as error:
            raise ConfigError("a FileConfigProvider needs the package javaproperties") from error

        text = read_text(_allowed(path, allowed, parameter), _MAX_FILE_BYTES)
        try:
            values: dict[str, str] = javaproperties.loads(text)
        except ValueError:
            raise ConfigError(f"{path} is not a properties file") from None
        if key not in values:
            raise ConfigError(f'{path} has no key "{key}"')
        return values[key]

    return get


def _directory_provider(parameter: str, allowed_paths: str) -> _Provider:
    allowed = _allowed_paths(parameter, allowed_paths)

    def get(path: str, key: str) -> str:
        folder = _allowed(path, allowed, parameter)
        if not key or "/" in key or key in (".", ".."):
            raise ConfigError(f'"{key}" is not the name of a file')
        return read_text(_allowed(str(folder / key), allowed, parameter), _MAX_FILE_BYTES)

    return get


def _environment_provider(parameter: str, allowlist_pattern: str) -> _Provider:
    try:
        pattern = re.compile(allowlist_pattern)
    except re.error as error:
        raise ConfigError(f'invalid value {allowlist_pattern!r} for configuration "{parameter}": {error}') from error

    def get(path: str, key: str) -> str:
        if path:
            raise ConfigError("a reference to an environment variable has no path: ${env:NAME}")
        # Kafka's predicate finds the pattern anywhere in the name.
        if not pattern.search(key):
            raise ConfigError(f"{parameter} does not allow the environment variable {key}")
        if key not in os.environ:
            raise ConfigError(f"the environment variable {key} is not set")
        return os.environ[key]

    return get


def _allowed_paths(parameter: str, text: str) -> list[Path] | None:
    """Return the normal paths of ``allowed.paths``, None for all paths."""
    if not text.strip():
        return None
    paths = [Path(os.path.normpath(part.strip())) for part in text.split(",")]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            raise ConfigError(
                f'invalid value {text!r} for configuration "{parameter}": {path} must be an absolute path that exists'
            )
    return paths


def _allowed(path: str, allowed: list[Path] | None, parameter: str) -> Path:
    if not path:
        raise ConfigError("a reference to a file has a path and a key: ${file:/path:key} or ${dir:/path:file}")
    normal, real = Path(os.path.normpath(path)), Path(os.path.realpath(path))
    if allowed is None:
        return normal
    if not any(normal.is_relative_to(each) for each in allowed):
        raise ConfigError(f"{parameter} does not allow {path}")
    # Stricter than Kafka's AllowedPaths, which follows links to anywhere.
    if not any(real.is_relative_to(os.path.realpath(each)) for each in allowed):
        raise ConfigError(f"{parameter} does not allow {path}, which is a link to {real}")
    return real


_KINDS: Final[Mapping[str, tuple[str, Callable[[str, str], _Provider]]]] = {
    "FileConfigProvider": ("allowed.paths", _file_provider),
    "DirectoryConfigProvider": ("allowed.paths", _directory_provider),
    "EnvVarConfigProvider": ("allowlist.pattern", _environment_provider),
}
"""The parameter and the constructor of each of Kafka's classes."""
_BUILT_IN: Final = {"file": "FileConfigProvider", "env": "EnvVarConfigProvider", "dir": "DirectoryConfigProvider"}
