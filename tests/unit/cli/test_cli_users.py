"""``tidelog user``: users and their passwords, which appear nowhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tidelog.testing import FakeCluster
from tidelog_foundation.sasl.scram_credentials import CredentialKey, ScramMechanism, credential_of, salted_password

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def no_users(run: Callable[..., Result], run_json: Callable[..., Any]) -> Iterator[None]:
    yield
    names = {user["user"] for user in run_json("user", "list")["users"]}
    if names:
        assert run("user", "delete", *names, "--yes").exit_code == 0


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\nsecond line\n")
    return str(path)


def has_password(cluster: FakeCluster, user: str, mechanism: ScramMechanism, password: str) -> bool:
    found = cluster._context().metadata.image.scram_credentials[CredentialKey(user, mechanism)]
    salted = salted_password(mechanism, password.encode(), found.salt, found.iterations)
    return credential_of(mechanism, salted, found.salt, found.iterations) == found


def test_users_are_created_listed_described_and_deleted(
    run: Callable[..., Result], run_json: Callable[..., Any], password_file: str
) -> None:
    created = run("user", "create", "alice", "--password-file", password_file)
    assert (created.exit_code, created.stdout) == (0, "created user alice\n")
    both = ("--mechanism", "SCRAM-SHA-512", "--mechanism", "scram-sha-256", "--iterations", "8192")
    created = run_json("user", "create", "bob", *both, "--password-file", password_file)
    assert created == {"user": "bob", "mechanisms": ["SCRAM-SHA-512", "SCRAM-SHA-256"]}
    alice = {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    bobs = [{"user": "bob", "mechanism": f"SCRAM-SHA-{n}", "iterations": 8192} for n in (256, 512)]
    assert run_json("user", "list") == {"users": [alice, *bobs]}
    assert run("user", "describe", "bob").stdout.split("\n")[:2] == [
        "USER  MECHANISM      ITERATIONS",
        "bob   SCRAM-SHA-256        8192",
    ]
    assert run("user", "delete", "bob", "--mechanism", "SCRAM-SHA-512", "--yes").exit_code == 0
    assert run_json("user", "describe", "bob") == {"users": bobs[:1]}
    assert run("user", "delete", "alice", "bob", "--yes").stdout == "deleted user alice\ndeleted user bob\n"
    assert run_json("user", "list") == {"users": []}


def test_set_password_changes_all_mechanisms_of_a_user(
    run: Callable[..., Result], cluster: FakeCluster, password_file: str
) -> None:
    both = ("--mechanism", "SCRAM-SHA-512", "--mechanism", "SCRAM-SHA-256")
    assert run("user", "create", "alice", *both, "--password-file", password_file).exit_code == 0
    changed = run("user", "set-password", "alice", "--password-file", "-", stdin="n\u00e4u,=\n")
    assert (changed.exit_code, changed.stdout) == (0, "set the password of user alice\n")
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        assert has_password(cluster, "alice", mechanism, "n\u00e4u,=")
        assert not has_password(cluster, "alice", mechanism, PASSWORD)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("create", "alice"), 1, "user alice exists"),
        (("set-password", "nobody"), 1, "there is no user nobody"),
        (("set-password", "nobody", "--mechanism", "SCRAM-SHA-256"), 1, "there is no user nobody"),
        (("create", "bob", "--mechanism", "PLAIN"), 2, "must be one of SCRAM-SHA-256, SCRAM-SHA-512, not PLAIN"),
        (("create", "bob", "--iterations", "4095"), 2, "4096<=x<=16384"),
    ],
)
def test_users_that_cannot_be_changed_are_named(
    run: Callable[..., Result], password_file: str, args: tuple[str, ...], code: int, text: str
) -> None:
    assert run("user", "create", "alice", "--password-file", password_file).exit_code == 0
    result = run("user", *args, "--password-file", password_file)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert PASSWORD not in result.output


def test_passwords_need_a_file_or_a_terminal_and_are_not_empty(run: Callable[..., Result], tmp_path: Path) -> None:
    asked = run("user", "create", "alice")
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert "There is no terminal to ask for the password: pass --password-file FILE" in asked.stderr
    (tmp_path / "binary").write_bytes(b"\xff")
    for path, text in (("-", "must not be empty"), (tmp_path / "none", "No such file"), (tmp_path / "binary", "UTF-8")):
        result = run("user", "create", "alice", "--password-file", str(path), stdin="\n")
        assert (result.exit_code, result.stdout) == (1, "")
        assert text in result.stderr


@pytest.mark.costly
def test_passwords_are_asked_for_without_echo(cluster: FakeCluster) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", "user", "create", "alice"]
    with subprocess.Popen(
        command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as asking:
        os.close(theirs)
        seen = b""
        for question in (b"Password for user alice: ", b"The same again: "):
            while question not in seen:
                seen += os.read(ours, 1_000)
            os.write(ours, PASSWORD.encode() + b"\n")
        assert asking.stdout is not None
        assert asking.stdout.read() == b"created user alice\n"
        assert asking.wait(20) == 0
    os.close(ours)
    assert PASSWORD.encode() not in seen
    assert has_password(cluster, "alice", ScramMechanism.SCRAM_SHA_512, PASSWORD)
