"""``tidelog certificate``."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog_cli.commands import app
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import PEM, REQUIRED, SslSettings


def create(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["certificate", "--folder", str(folder), *args])


def test_certificates_of_one_folder_have_one_authority_and_are_those_that_a_server_needs(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    assert create(folder, "node-1", "--host", "localhost").exit_code == 0
    authority = (folder / "ca.pem").read_text()
    shown = json.loads(create(folder, "alice", "--days", "7", "--json").stdout)
    assert (shown["key_store"], shown["ca"]) == (str(folder / "alice.pem"), str(folder / "ca.pem"))
    assert (folder / "ca.pem").read_text() == authority
    settings = SslSettings(
        ssl_keystore_type=PEM,
        ssl_keystore_location=str(folder / "node-1.pem"),
        ssl_truststore_type=PEM,
        ssl_truststore_location=str(folder / "ca.pem"),
        ssl_client_auth=REQUIRED,
    )
    assert CertificateStore("SSL", settings).current.key.subject == "CN=node-1"
    private = {path.name for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600}
    assert private == {"ca-key.pem", "node-1.pem", "alice.pem"}


@pytest.mark.parametrize("name", ["../x", "a/b", "", "ca", "ca-key"])
def test_name_that_is_no_name_of_a_store_is_refused(tmp_path: Path, name: str) -> None:
    result = create(tmp_path, name)
    assert result.exit_code == 1
    assert "the name has 1 to 64 letters" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_renewed_certificate_keeps_its_hosts_unless_others_are_named(tmp_path: Path) -> None:
    def hosts(*args: str) -> list[str]:
        found: list[str] = json.loads(create(tmp_path, "node-1", "--json", *args).stdout)["hosts"]
        return found

    assert hosts("--host", "node1.example", "--host", "10.0.0.1") == ["node1.example", "10.0.0.1"]
    assert hosts() == ["node1.example", "10.0.0.1"]
    assert hosts("--host", "other.example") == ["other.example"]
    (tmp_path / "node-1.pem").write_text("not a certificate")
    assert "has no certificate: remove it" in create(tmp_path, "node-1").stderr
