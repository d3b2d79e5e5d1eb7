"""The values of ``sasl.jaas.config``: a login module and its options, in the format of Kafka's JaasConfig (KIP-85).

The format is ``module flag option=value ...;`` with values in single or double quotes if they contain a space, a quote,
``=``, ``;`` or ``/``. In quotes, a backslash escapes as in Java. Error texts never contain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

PLAIN_LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KRB5_LOGIN_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
USER_PREFIX: Final = "user_"
"""The prefix of the options of PLAIN servers that have the users' passwords."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[\x00-\x20]+ | /\*.*?\*/ | /[^\n\r]*)
    | "(?P<double>(?:\\.|[^"\\\n\r])*)"
    | '(?P<single>(?:\\.|[^'\\\n\r])*)'
    | (?P<mark>[=;])
    | (?P<word>[^\x00-\x20"'=;/]+)
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_Token = tuple[str, str]
"""The kind of a token (word, mark or quoted) and its text."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options, which are secret."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    def check_module(self, *modules: str) -> None:
        """Raise if the module is none of ``modules``.

        Raises:
            ConfigError: The text names the module and the expected ones.
        """
        if self.module not in modules:
            raise ConfigError(f"the login module is {self.module}, but must be {' or '.join(modules)}")

    def check_options(self, *known: str, prefix: str | None = None) -> None:
        """Raise if an option is not among ``known`` and does not begin with ``prefix``.

        Raises:
            ConfigError: The text names the option.
        """
        for option in self.options:
            if option not in known and not (prefix is not None and option.startswith(prefix)):
                others = f" and those that begin with {prefix}" if prefix is not None else ""
                raise ConfigError(f'unknown option "{option}" of {self.module}: it has {", ".join(known)}{others}')

    def require(self, option: str) -> str:
        """Return an option's value.

        Raises:
            ConfigError: It is missing or empty.
        """
        value = self.options.get(option)
        if not value:
            raise ConfigError(f'{self.module} needs the option "{option}"')
        return value

    def flag(self, option: str) -> bool:
        """Return whether an option is true. As in Java, everything but ``true`` is false."""
        return self.options.get(option, "").lower() == "true"

    def users(self) -> dict[str, str]:
        """Return the passwords by user that a PLAIN server accepts: the options ``user_<name>``."""
        return {
            option.removeprefix(USER_PREFIX): value
            for option, value in self.options.items()
            if option.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasEntry:
    """Return the login module of a value of ``sasl.jaas.config``.

    Raises:
        ConfigError: The text is malformed or has several login modules. The error contains no value.
    """
    tokens = _tokens(text)
    if not tokens:
        raise ConfigError("the value names no login module: must be a module, required, its options, and a semicolon")
    [(_, module), *rest] = tokens
    if not rest or rest[0][1].lower() not in _FLAGS:
        raise ConfigError(f"the login module must be followed by one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    position = 1
    while position < len(rest) and rest[position] != ("mark", ";"):
        name, value = _option(rest[position : position + 3])
        if name in options:
            raise ConfigError(f'the option "{name}" occurs twice')
        options[name] = value
        position += 3
    if position >= len(rest):
        raise ConfigError("the login module's options must end with a semicolon")
    if position + 1 < len(rest):
        raise ConfigError("only one login module is possible, but text follows its semicolon")
    return JaasEntry(module, options)


def _option(tokens: list[_Token]) -> tuple[str, str]:
    kind, name = tokens[0]
    if kind == "mark":
        raise ConfigError('an option has no name before "="')
    if len(tokens) < 3 or tokens[1] != ("mark", "=") or tokens[2][0] == "mark":
        # A text without "=" may be a part of a password.
        known = f' "{name}"' if len(tokens) > 1 and tokens[1] == ("mark", "=") else ""
        raise ConfigError(f'an option{known} has no value: must be name=value or name="value"')
    return name, tokens[2][1]


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ConfigError("a quoted value does not end in its line")
        position = found.end()
        kind = found.lastgroup
        assert kind is not None, "each alternative has a name"
        if kind in ("double", "single"):
            tokens.append(("quoted", _ESCAPE.sub(_unescape, found[kind])))
        elif kind != "space":
            tokens.append((kind, found[kind]))
    return tokens


def _unescape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)
