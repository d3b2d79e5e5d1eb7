"""A key distribution center of MIT Kerberos on loopback, for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REALM = "EXAMPLE.COM"
_PROGRAMS = ("kdb5_util", "kadmin.local", "krb5kdc")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_START_S = 10


def missing_program() -> str | None:
    """Return the name of a program of the KDC that this machine does not have, or None."""
    return next((name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None), None)


@dataclass(frozen=True)
class Kdc:
    """A running KDC. ``configuration`` is the krb5.conf of its clients."""

    folder: Path
    configuration: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "PATH": _PATH,
        }

    def key_table(self, *principals: str) -> Path:
        """Create principals with random keys, and return a key table of all of them."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}@{REALM}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}@{REALM}")
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal another key, which no key table has."""
        self._run("kadmin.local", "-r", REALM, "-q", f"cpw -randkey {principal}@{REALM}")

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=os.environ | self.environment, check=True, capture_output=True, timeout=60)


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    """Run a KDC of the realm EXAMPLE.COM."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configuration = folder / "krb5.conf"
    configuration.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
        f" rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {folder / 'principal'}\n  key_stash_file = {folder / 'stash'}\n"
        f"  acl_file = {folder / 'acl'}\n }}\n"
    )
    kdc = Kdc(folder, configuration)
    kdc._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    process = subprocess.Popen(
        ["krb5kdc", "-n", "-r", REALM],
        env=os.environ | kdc.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_listening(process, port)
        yield kdc
    finally:
        process.terminate()
        process.wait(_START_S)


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        assert process.poll() is None, "the KDC has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the KDC does not listen in time"
            time.sleep(0.02)
