"""``tidelog quorum format``: the users with which a new cluster begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog_cli.tools.quorum_format import app
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.sasl.scram_credentials import (
    CredentialKey,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.server.bootstrap_file import read_bootstrap_records

SHA_512 = ScramMechanism.SCRAM_SHA_512
ALICE = "SCRAM-SHA-512=[name=alice,password=canary]"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "controller.properties"
    settings = {
        "node.id": 1,
        "cluster.id": "c1",
        "listeners": "GRPC://127.0.0.1:9093",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": tmp_path / "metadata",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def quorum_format(properties: Path, *options: str) -> Result:
    return CliRunner().invoke(app, [str(properties), *options])


def new_cluster(directory: Path) -> MetadataImage:
    """Return the image of a cluster that begins with the folder's records."""
    controller = Controller(ControllerConfig("c1"), iter(()), read_bootstrap_records(directory))
    return MetadataImage().apply(1, 1, controller.bootstrap().records)


def test_format_gives_a_new_cluster_its_users(
    properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOB", "of bob")
    (tmp_path / "carol").write_text("of carol, with a comma\n")
    more = ("SCRAM-SHA-512=[name=bob,password-env=BOB]", f"SCRAM-SHA-512=[name=carol,password-file={tmp_path}/carol]")
    result = quorum_format(properties, *(part for text in (ALICE, *more) for part in ("--add-scram", text)))
    assert result.stdout == f"formatted {tmp_path}/metadata with users alice, bob, carol\n"
    found = new_cluster(tmp_path / "metadata").scram_credentials
    for user, password in (("alice", "canary"), ("bob", "of bob"), ("carol", "of carol, with a comma")):
        stored = found[CredentialKey(user, SHA_512)]
        salted = salted_password(SHA_512, password.encode(), stored.salt, stored.iterations)
        assert stored == credential_of(SHA_512, salted, stored.salt, stored.iterations)
    [file] = (tmp_path / "metadata").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"canary" not in file.read_bytes()


def test_format_changes_nothing_in_a_folder_that_is_formatted(properties: Path, tmp_path: Path) -> None:
    assert quorum_format(properties, "--add-scram", ALICE).exit_code == 0
    before = read_bootstrap_records(tmp_path / "metadata")
    again = quorum_format(properties, "--add-scram", ALICE)
    assert isinstance(again.exception, TidelogError)
    assert "is formatted already: add users with tidelog user create" in again.exception.message
    ignored = quorum_format(properties, "--add-scram", ALICE, "--ignore-formatted")
    assert (ignored.exit_code, ignored.stdout) == (0, f"{tmp_path}/metadata is formatted already\n")
    assert read_bootstrap_records(tmp_path / "metadata") == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Missing option --add-scram"),
        (("--add-scram", ALICE, "--add-scram", ALICE), "names a user twice"),
    ],
)
def test_format_refuses_wrong_usage(properties: Path, options: tuple[str, ...], problem: str) -> None:
    result = quorum_format(properties, *options)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_format_refuses_an_empty_password(properties: Path, tmp_path: Path) -> None:
    result = quorum_format(properties, "--add-scram", "SCRAM-SHA-512=[name=bob,password-env=TIDELOG_ABSENT]")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.message == "the password of user bob must not be empty"
    assert not (tmp_path / "metadata").exists()


def test_damaged_bootstrap_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.records").write_bytes(b"\0\0\0\x09abc")
    with pytest.raises(ConfigError, match="is damaged, write it again with tidelog quorum format"):
        read_bootstrap_records(tmp_path)


def test_users_of_the_file_are_not_added_to_a_cluster_that_exists(properties: Path, tmp_path: Path) -> None:
    quorum_format(properties, "--add-scram", ALICE)
    controller = Controller(ControllerConfig("c1"), iter(()), read_bootstrap_records(tmp_path / "metadata"))
    controller.replay(1, 1, controller.bootstrap().records[:3])
    assert controller.bootstrap().records == []
