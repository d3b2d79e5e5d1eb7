"""References to config providers in settings (KIP-297, KIP-421)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog_foundation.config import parse_config, setting
from tidelog_foundation.config.endpoints import parse_listeners
from tidelog_foundation.config.process import run_process
from tidelog_foundation.config.providers import (
    AUTOMATIC_VARIABLE,
    has_reference,
    resolve_client_settings,
    resolve_settings,
)
from tidelog_foundation.config.settings import ProvidedText
from tidelog_foundation.errors import ConfigError

CANARY = "canary-7f3a"
KAFKAS = "org.apache.kafka.common.config.provider."


@dataclass(frozen=True, slots=True)
class Settings:
    name: str = setting("", "A text.")
    listeners: str = setting("", "Parsed text.", parse_listeners)
    count: int = setting(0, "A number.")


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets.properties").write_text(f"key.password = {CANARY}\nnested=${{env:CANARY}}\n")
    (tmp_path / "password").write_text(f"{CANARY}\n")
    monkeypatch.setenv("CANARY", CANARY)
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("${file:%s/secrets.properties:key.password}", CANARY),
        ("${dir:%s:password}", f"{CANARY}\n"),
        ("${env:CANARY}", CANARY),
        ("GRPC://${env:CANARY}:1,PLAINTEXT://${env:CANARY}:2", f"GRPC://{CANARY}:1,PLAINTEXT://{CANARY}:2"),
        ("${file:%s/secrets.properties:nested}", "${env:CANARY}"),
    ],
)
def test_reference_is_replaced_without_a_declaration_in_a_server(secrets: Path, reference: str, value: str) -> None:
    text = reference.replace("%s", str(secrets))
    resolved = resolve_settings({"a": text, "b": "plain"})
    assert resolved == {"a": value, "b": "plain"}
    assert isinstance(resolved["a"], ProvidedText)
    assert not isinstance(resolved["b"], ProvidedText)


@pytest.mark.parametrize("literal", ["${kafka.logs.dir}/data", "$1", "a:b", "RULE:^CN=(.*?)$/$1/L", "{env:HOME}", "${"])
def test_text_that_is_no_reference_stays(literal: str) -> None:
    assert not has_reference(literal)
    assert resolve_settings({"a": literal}) == {"a": literal}


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${file:%s/secrets.properties:none}", 'has no key "none"'),
        ("${file:%s/none:key}", "No such file"),
        ("${file:key}", "a path and a key"),
        ("${dir:%s:none}", "No such file"),
        ("${dir:%s:../password}", "not the name of a file"),
        ("${env:NOT_SET}", "NOT_SET is not set"),
        ("${env:path:CANARY}", "has no path"),
        ("${vault:path:key}", 'no config provider "vault"'),
    ],
)
def test_reference_without_a_value_is_an_error_that_names_it_and_no_value(
    secrets: Path, reference: str, reason: str
) -> None:
    text = reference.replace("%s", str(secrets))
    with pytest.raises(ConfigError, match=reason) as error:
        resolve_settings({"ssl.key.password": text})
    assert text in error.value.message
    assert "ssl.key.password" in error.value.message
    assert CANARY not in error.value.message


def test_provider_of_another_name_is_declared_with_kafkas_class(secrets: Path) -> None:
    declared = {
        "config.providers": "vault, hidden",
        "config.providers.vault.class": f"{KAFKAS}FileConfigProvider",
        "config.providers.vault.param.allowed.paths": str(secrets),
        "config.providers.hidden.class": "DirectoryConfigProvider",
    }
    given = {"a": f"${{vault:{secrets}/secrets.properties:key.password}}", "b": f"${{hidden:{secrets}:password}}"}
    assert resolve_settings({**declared, **given}) == {"a": CANARY, "b": f"{CANARY}\n"}


@pytest.mark.parametrize("path", ["/etc/hostname", "%s/../../etc/hostname", "%sx/secrets.properties"])
def test_file_outside_of_the_allowed_paths_is_not_read(secrets: Path, path: str) -> None:
    path = path.replace("%s", str(secrets))
    declared = {"config.providers": "file", "config.providers.file.param.allowed.paths": str(secrets)}
    with pytest.raises(ConfigError, match=r"config\.providers\.file\.param\.allowed\.paths does not allow"):
        resolve_settings({**declared, "a": f"${{file:{path}:key}}"})


@pytest.mark.parametrize("kind", ["file", "dir"])
def test_link_to_a_file_outside_of_the_allowed_paths_is_not_read(tmp_path: Path, secrets: Path, kind: str) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "own.properties").write_text("password=own")
    (allowed / "inside").symlink_to(allowed / "own.properties")
    (allowed / "outside").symlink_to(secrets / "secrets.properties")
    (allowed / "folder").symlink_to(secrets)
    declared = {"config.providers": kind, f"config.providers.{kind}.param.allowed.paths": str(allowed)}

    def resolved(name: str) -> str:
        path = f"{allowed}/{name}"
        reference = f"{path}:password" if kind == "file" else ":".join(path.rsplit("/", 1))
        return resolve_settings({**declared, "a": f"${{{kind}:{reference}}}"})["a"]

    assert "own" in resolved("inside")
    for name in ("outside", "folder/secrets.properties"):
        with pytest.raises(ConfigError, match=f"allowed.paths does not allow .*, which is a link to {secrets}"):
            resolved(name)


def test_variable_outside_of_the_allowlist_is_not_read(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {"config.providers": "env", "config.providers.env.param.allowlist.pattern": "^TIDELOG_"}
    monkeypatch.setenv("TIDELOG_A", "1")
    assert resolve_settings({**declared, "a": "${env:TIDELOG_A}"}) == {"a": "1"}
    with pytest.raises(ConfigError, match="does not allow the environment variable CANARY"):
        resolve_settings({**declared, "a": "${env:CANARY}"})


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"config.providers": "vault"}, r"missing required configuration .config\.providers\.vault\.class"),
        ({"config.providers": "v", "config.providers.v.class": "com.acme.Vault"}, r"com\.acme\.Vault.*must be one of"),
        ({"config.providers": "file", "config.providers.file.param.x": "1"}, "only .allowed.paths"),
        ({"config.providers": "file", "config.providers.file.param.allowed.paths": "a"}, "absolute path"),
        ({"config.providers": "env", "config.providers.env.param.allowlist.pattern": "("}, "invalid value"),
        ({"config.providers.file.class": "FileConfigProvider"}, "unknown configuration"),
    ],
)
def test_invalid_declaration_is_an_error(declared: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        resolve_settings(declared)


def test_clients_setting_is_literal_without_a_declaration(secrets: Path) -> None:
    given = {"a": "${env:CANARY}", "callback": print}
    assert resolve_client_settings(given) == given
    assert resolve_client_settings({**given, "config.providers": "env"}) == {"a": CANARY, "callback": print}


@pytest.mark.parametrize("permitted", ["none", f"{KAFKAS}FileConfigProvider,DirectoryConfigProvider"])
def test_clients_provider_is_refused_when_the_process_does_not_permit_it(
    secrets: Path, monkeypatch: pytest.MonkeyPatch, permitted: str
) -> None:
    monkeypatch.setenv(AUTOMATIC_VARIABLE, permitted)
    with pytest.raises(ConfigError, match=f"EnvVarConfigProvider is not permitted by {AUTOMATIC_VARIABLE}"):
        resolve_client_settings({"config.providers": "env", "a": "${env:CANARY}"})


@pytest.mark.parametrize("key", ["count", "listeners"])
def test_invalid_value_of_a_provider_is_not_in_the_error(secrets: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf'invalid value \[hidden\] for configuration "{key}"') as error:
        parse_config(Settings, resolve_settings({key: "${env:CANARY}"}))
    assert CANARY not in error.value.message
    assert error.value.__cause__ is None


def test_value_of_a_provider_is_not_in_the_repr_of_the_settings(secrets: Path) -> None:
    config = parse_config(Settings, resolve_settings({"name": f"${{dir:{secrets}:password}}"}))
    assert config.name == CANARY
    assert CANARY not in repr(config)


def test_process_gets_the_values_of_its_references(secrets: Path) -> None:
    file = secrets / "node.properties"
    file.write_text("a=${env:CANARY}\n")
    seen = {}

    async def main(properties: dict[str, str]) -> None:
        seen.update(properties)

    assert run_process(main, [str(file), "--override", f"b=${{dir:{secrets}:password}}"], "test") == 0
    assert seen == {"a": CANARY, "b": f"{CANARY}\n"}
