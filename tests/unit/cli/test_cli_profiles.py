"""Profiles: their file, their commands, and what of them holds when."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog.cluster.config import ClientConfig
from tidelog.testing import FakeCluster
from tidelog_cli.commands import app
from tidelog_cli.options.connection import find_cluster
from tidelog_cli.options.profiles import profile_path, read_profiles
from tidelog_foundation.config import parse_config
from tidelog_foundation.config.providers import resolve_settings
from tidelog_foundation.errors import ConfigError, TidelogError


def run(*args: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "200", **(env or {})})


def test_profiles_are_created_used_listed_shown_and_deleted(profile_file: Path) -> None:
    created = run("profile", "create", "dev", "-b", "a:1,b:2", "-X", "client.id=me")
    assert created.stdout == f"profile dev is in {profile_file} and is used from now on\n"
    assert run("profile", "create", "prod", "-b", "c:3").stdout.endswith("; tidelog profile use prod takes it\n")
    assert stat.S_IMODE(profile_file.stat().st_mode) == 0o600
    assert run("profile", "list").stdout == (
        "NAME  BOOTSTRAP SERVERS  CURRENT\ndev   a:1,b:2            yes\nprod  c:3                no\n"
    )
    assert run("profile", "use", "prod").exit_code == 0
    assert json.loads(run("profile", "show", "--json").stdout)["name"] == "prod"
    shown = json.loads(run("profile", "show", "dev", "--json").stdout)
    assert shown == {"name": "dev", "settings": {"bootstrap.servers": "a:1,b:2", "client.id": "me"}}
    deleted = run("profile", "delete", "prod", "--json")
    assert json.loads(deleted.stdout) == {"name": "prod", "exists": False, "current": False}
    assert read_profiles().current is None
    nothing = run("profile", "show")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert list(read_profiles().by_name) == ["dev"]


def test_comments_of_the_file_are_kept(profile_file: Path) -> None:
    profile_file.parent.mkdir()
    profile_file.write_text('# mine\n[profiles.dev]\nbootstrap_servers = "a:1" # here\n')
    profile_file.chmod(0o644)
    assert run("profile", "use", "dev").exit_code == 0
    assert run("profile", "create", "prod", "-b", "b:1").exit_code == 0
    text = profile_file.read_text()
    assert "# mine" in text
    assert "# here" in text
    assert read_profiles().current == "dev"
    assert stat.S_IMODE(profile_file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("current = ", "is not TOML"),
        ('current = "x"', "current names 'x', and there is no such profile"),
        ("more = 1", 'the file has the unknown key "more"; there are current, profiles'),
        ('[profiles.a]\nservers = "a:1"', 'profile a has the unknown key "servers"'),
        ("[profiles.a]", "a.bootstrap_servers must be a text, not None"),
        ('[profiles.a]\nbootstrap_servers = "a:x"', "profile a: "),
        (
            '[profiles.a]\nbootstrap_servers = "a:1"\n[profiles.a.client]\n"linger.ms" = 5',
            'unknown configuration "linger.ms"',
        ),
    ],
)
def test_a_file_that_is_not_valid_is_refused_with_its_path(profile_file: Path, text: str, problem: str) -> None:
    profile_file.parent.mkdir()
    profile_file.write_text(text)
    result = run("profile", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"tidelog: error: {profile_file}")
    assert problem in result.stderr


@pytest.mark.parametrize(("name", "servers"), [("a b", "a:1"), ("", "a:1"), ("x", "no:port"), ("x" * 65, "a:1")])
def test_a_profile_that_is_not_valid_is_not_written(profile_file: Path, name: str, servers: str) -> None:
    result = run("profile", "create", name, "-b", servers)
    assert result.exit_code == 1
    assert not profile_file.exists()


def test_what_names_the_cluster_has_an_order(profile_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def servers(bootstrap_servers: str | None = None, name: str | None = None) -> str:
        return find_cluster(bootstrap_servers, name).profile.bootstrap_servers

    assert servers() == "localhost:9094"
    run("profile", "create", "current", "-b", "current:1", "-X", "client.id=secret")
    run("profile", "create", "other", "-b", "other:1", "-X", "client.id=o")
    assert servers() == "current:1"
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "environment:1")
    assert servers() == "environment:1"
    assert servers(name="other") == "other:1"
    assert servers("option:1") == "option:1"
    # The settings of a profile, a password for one, do not go to another cluster unless it is asked for by name.
    assert dict(find_cluster("option:1", None).profile.client) == {}
    assert find_cluster("option:1", "other").profile.settings == {"bootstrap.servers": "option:1", "client.id": "o"}
    with pytest.raises(TidelogError, match=r'there is no profile "none" in .*; there are current, other'):
        servers(name="none")


def test_commands_use_a_profile_and_settings_of_the_option_go_before_its_own(cluster: FakeCluster) -> None:
    run("profile", "create", "fake", "-b", cluster.bootstrap_servers, "-X", "request.timeout.ms=5000")
    assert run("topic", "list").exit_code == 0
    assert run("topic", "list", "--profile", "fake", "-X", "request.timeout.ms=7000").exit_code == 0
    refused = run("topic", "list", "-X", "linger=1")
    assert refused.stderr.startswith('tidelog: error: unknown configuration "linger"')


def test_the_file_is_below_the_folder_of_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_PROFILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/xdg")
    assert profile_path() == Path("/etc/xdg/tidelog/profile.toml")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert profile_path() == Path("/home/me/.config/tidelog/profile.toml")


def test_a_broken_file_does_not_matter_where_the_cluster_is_named(profile_file: Path) -> None:
    profile_file.parent.mkdir()
    profile_file.write_text("nonsense")
    assert find_cluster("a:1").is_asked_for
    with pytest.raises(ConfigError, match="is not TOML"):
        find_cluster()


def test_profile_keeps_references_and_a_command_uses_their_values(
    cluster: FakeCluster, tmp_path: Path, profile_file: Path
) -> None:
    (tmp_path / "name").write_text("me\n")
    reference = f"${{dir:{tmp_path}:name}}"
    created = run("profile", "create", "fake", "-b", cluster.bootstrap_servers, "-X", f"client.id={reference}")
    assert created.exit_code == 0
    assert reference in profile_file.read_text()
    assert run("topic", "list").exit_code == 0
    (tmp_path / "name").unlink()
    assert run("profile", "list").exit_code == 0
    missing = run("topic", "list")
    assert missing.exit_code == 1
    assert f'cannot resolve {reference} in configuration "client.id"' in missing.stderr


def test_profile_with_a_provider_of_its_own_resolves_references_to_it(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "name").write_text("me")
    kind = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    declared = ("-X", "config.providers=mine", "-X", f"config.providers.mine.class={kind}")
    settings = (*declared, "-X", f"client.id=${{mine:{tmp_path}:name}}")
    assert run("profile", "create", "fake", "-b", cluster.bootstrap_servers, *settings).exit_code == 0
    assert run("topic", "list").exit_code == 0


def test_profile_shows_references_to_secrets_and_no_secrets() -> None:
    run("profile", "create", "a", "-b", "a:1", "-X", "ssl.key.password=canary", "-X", "security.protocol=ssl")
    run("profile", "create", "b", "-b", "a:1", "-X", "ssl.key.password=${env:KEY_PASSWORD}")
    assert "canary" not in run("profile", "show", "a").stdout + run("profile", "show", "a", "--json").stdout
    assert json.loads(run("profile", "show", "a", "--json").stdout)["settings"]["ssl.key.password"] == "[hidden]"
    assert "${env:KEY_PASSWORD}" in run("profile", "show", "b").stdout


def test_unknown_setting_with_a_reference_is_refused(profile_file: Path) -> None:
    refused = run("profile", "create", "a", "-b", "a:1", "-X", "ssl.key.pasword=${env:KEY_PASSWORD}")
    assert 'unknown configuration "ssl.key.pasword"; did you mean "ssl.key.password"?' in refused.stderr
    assert not profile_file.exists()


def test_profile_of_a_secured_cluster_refers_to_the_password_and_the_files(tmp_path: Path, profile_file: Path) -> None:
    (tmp_path / "ca.pem").touch()
    (tmp_path / "word.txt").write_text("correct horse\n")
    options = ("--security", "sasl_ssl", "--username", "admin", "--ca", str(tmp_path / "ca.pem"))
    created = run("profile", "create", "lab", "-b", "a:1", *options, "--password-file", str(tmp_path / "word.txt"))
    assert created.exit_code == 0, created.stderr
    profile = read_profiles().get("lab")
    assert profile.client == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": f"${{dir:{tmp_path}:word.txt}}",
    }
    assert parse_config(ClientConfig, resolve_settings(profile.settings)).sasl_password == "correct horse"
    assert "horse" not in profile_file.read_text()
    assert stat.S_IMODE(profile_file.stat().st_mode) == 0o600


def test_profile_refers_to_the_variable_of_the_password() -> None:
    options = ("--security", "sasl_plaintext", "--sasl-mechanism", "PLAIN", "--username", "u", "--password-env", "WORD")
    assert run("profile", "create", "lab", "-b", "a:1", *options).exit_code == 0
    settings = read_profiles().get("lab").client
    assert (settings["sasl.password"], settings["sasl.mechanisms"]) == ("${env:WORD}", "PLAIN")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--ca", "ca.pem"), "--ca needs --security ssl or sasl_ssl."),
        (("--security", "sasl_plaintext", "--ca", "ca.pem"), "--ca needs --security ssl or sasl_ssl."),
        (("--security", "ssl", "--username", "u"), "--username needs --security sasl_ssl or sasl_plaintext."),
        (("--security", "sasl_ssl"), "SCRAM-SHA-512 logins need --username."),
        (("--security", "ssl", "--key", "k.pem"), "--certificate and --key belong together."),
        (("--security", "ssl", "--ca", "/nowhere/ca.pem"), "cannot read /nowhere/ca.pem"),
        (("--security", "sasl_ssl", "--username", "u"), "There is no terminal to ask for the password"),
        (("--security", "sasl_ssl", "--username", "u", "--password-env", "a}b"), "a reference cannot name"),
        (
            ("--security", "sasl_ssl", "--username", "u", "--password-file", "/dev/null"),
            "/dev/null must have one line, the password, and not 0",
        ),
        (
            ("--security", "sasl_ssl", "--username", "u", "--password-env", "A", "--password-file", "a"),
            "--password-file and --password-env exclude each other.",
        ),
        (
            ("--security", "sasl_ssl", "--sasl-mechanism", "GSSAPI", "--username", "u"),
            "--username needs --sasl-mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
        ),
        (
            ("--security", "ssl", "-X", "security.protocol=plaintext"),
            "security.protocol has the value ssl by an option",
        ),
    ],
)
def test_profile_with_options_of_security_that_do_not_fit_is_not_written(
    profile_file: Path, options: tuple[str, ...], text: str
) -> None:
    refused = run("profile", "create", "lab", "-b", "a:1", *options)
    assert refused.exit_code in (1, 2)
    assert text in " ".join(refused.stderr.replace("│", " ").split())
    assert not profile_file.exists()
