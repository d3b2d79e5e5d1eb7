"""The file of profiles: named clusters with their addresses and the settings of clients, for the command line.

::

    current = "staging"

    [profiles.staging]
    bootstrap_servers = "node1:9094,node2:9094"

    [profiles.staging.client]
    "request.timeout.ms" = "5000"

A value may be a reference to a config provider, such as ``${file:/path:key}``, which is resolved when the profile is
used. Its path is ``~/.config/tidelog/profile.toml`` (below ``XDG_CONFIG_HOME`` if that is set) or the value of
``TIDELOG_PROFILE``. It may hold credentials, so it is written readable for its owner only. Comments are kept.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cluster.config import ClientConfig
from tidelog_foundation.config import config_keys, describe, parse_config
from tidelog_foundation.config.providers import has_reference, is_declaration
from tidelog_foundation.config.settings import HIDDEN, unknown_key
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.replaced_files import replace_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

FILE_VARIABLE = "TIDELOG_PROFILE"
_MODE = 0o600
_SERVERS = "bootstrap.servers"
_ANY_ADDRESS = "localhost:1"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster's addresses, as ``host:port,host:port``, and settings for every client, such as ``client.id``."""

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """The configuration of a client."""
        return {_SERVERS: self.bootstrap_servers, **self.client}

    @property
    def shown_settings(self) -> dict[str, str]:
        """The configuration of a client without its secrets. References to secrets remain."""
        secret = {key for info in describe(ClientConfig) if info.secret for key in (info.key, *info.aliases)}
        return {
            key: HIDDEN if key in secret and not has_reference(value) else value for key, value in self.settings.items()
        }


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles by name, and the name of the current one."""

    by_name: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Profile:
        """Return a profile; raise TidelogError (_INVALID_ARG) if there is none of that name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none: tidelog profile create makes one"
            raise error_for(
                ErrorCode._INVALID_ARG, f'there is no profile "{name}" in {profile_path()}; there are {known}'
            )
        return self.by_name[name]


def profile_path() -> Path:
    """Return the path of the profiles' file."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "tidelog" / "profile.toml"


def read_profiles(path: Path | None = None) -> Profiles:
    """Read the file, by default :func:`profile_path`; without a file there are no profiles.

    Raises:
        TidelogError: INVALID_CONFIG, it is not TOML, or has an unknown key or an invalid value.
        OSError: it cannot be read.
    """
    path = path or profile_path()
    try:
        return parse_profiles(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Profiles()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def parse_profiles(content: Mapping[str, Any]) -> Profiles:
    """Return the profiles of a file's content.

    Raises:
        ConfigError: a key is unknown, a value has the wrong type or is invalid, or ``current`` names no profile.
    """
    _refuse_unknown(content, ("current", "profiles"), "the file")
    tables = _typed(content.get("profiles", {}), dict, "profiles", "a table")
    profiles = {name: _profile(name, _typed(table, dict, name, "a table")) for name, table in tables.items()}
    current = content.get("current")
    if current is not None and current not in profiles:
        raise ConfigError(f"current names {current!r}, and there is no such profile")
    return Profiles(profiles, current)


def write_profile(name: str, profile: Profile, *, use: bool, path: Path | None = None) -> None:
    """Add or replace a profile; the first profile, and any with ``use``, becomes the current one.

    ``path`` is the file of the profiles, by default :func:`profile_path`.

    Raises:
        ConfigError: the name, a setting or the file is invalid.
        OSError: it cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f'a profile\'s name has 1 to 64 letters, digits, "-" and "_", not {name!r}')
    _check(name, profile)
    path = path or profile_path()
    existing = read_profiles(path)

    def change(document: TOMLDocument) -> None:
        import tomlkit

        table = tomlkit.table()
        table["bootstrap_servers"] = profile.bootstrap_servers
        if profile.client:
            table["client"] = dict(profile.client)
        document.setdefault("profiles", tomlkit.table(is_super_table=True))[name] = table
        if use or existing.current is None:
            document["current"] = name

    _rewrite(path, change)


def use_profile(name: str) -> None:
    """Make a profile the current one; raise like :meth:`Profiles.get` and OSError."""
    read_profiles().get(name)

    def change(document: TOMLDocument) -> None:
        document["current"] = name

    _rewrite(profile_path(), change)


def delete_profile(name: str) -> None:
    """Remove a profile; raise like :meth:`Profiles.get` and OSError."""
    read_profiles().get(name)

    def change(document: TOMLDocument) -> None:
        del document["profiles"][name]
        if document.get("current") == name:
            del document["current"]

    _rewrite(profile_path(), change)


def _rewrite(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit

    text = path.read_text(encoding="utf-8") if path.exists() else ""
    document = tomlkit.parse(text)
    change(document)
    # A key of the root must not follow a table, so "current" goes to the top.
    if "current" in document and "current" not in tomlkit.parse(text):
        current = document.pop("current")
        document = tomlkit.parse(f"current = {tomlkit.item(str(current)).as_string()}\n\n{tomlkit.dumps(document)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, tomlkit.dumps(document).encode(), _MODE)


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    _refuse_unknown(table, ("bootstrap_servers", "client"), f"profile {name}")
    servers = _typed(table.get("bootstrap_servers"), str, f"{name}.bootstrap_servers", "a text")
    client = _typed(table.get("client", {}), dict, f"{name}.client", "a table")
    profile = Profile(servers, {key: str(value) for key, value in client.items()})
    _check(name, profile)
    return profile


def _check(name: str, profile: Profile) -> None:
    """Raise ConfigError for an invalid setting. References may have no value yet, so only their keys are checked."""
    settings = {key: value for key, value in profile.settings.items() if not is_declaration(key)}
    plain = {key: value for key, value in settings.items() if not has_reference(value)}
    known = config_keys(ClientConfig)
    try:
        for key in settings.keys() - known:
            raise ConfigError(unknown_key(key, known))
        parse_config(ClientConfig, {_SERVERS: _ANY_ADDRESS, **plain})
    except TidelogError as error:
        raise ConfigError(f"profile {name}: {error.message}") from None


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f'{where} has the unknown key "{key}"; there are {", ".join(known)}')


def _typed(value: Any, kind: type, key: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be {name}, not {value!r}")
    return value
