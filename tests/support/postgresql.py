"""A PostgreSQL of the tests: a server on a port of loopback, in a temporary folder."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.testing.ports import free_ports

_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")
_USER = "tidelog"
_USERS = ("postgres", "nobody")
"""Those that run the server for root, which it refuses."""


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    for pattern in _FOLDERS:
        for folder in sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True):
            if (folder / "initdb").exists():
                return folder
    found = shutil.which("initdb")
    return None if found is None else Path(found).parent


class PostgreSql:
    """A running server with the database ``postgres``, for the user ``tidelog`` without a password."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        self._bin, self._folder = bin_folder, folder
        self.port = free_ports(1)[0]
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a connector for this database."""
        return {"connection.url": self.url, "connection.user": _USER}

    def execute(self, sql: str) -> str:
        """Execute statements, and return what psql prints of their rows.

        Raises:
            AssertionError: the server refuses one.
        """
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", "postgres"]
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [self._bin / "psql", *address, *options], input=sql, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query, as PostgreSQL's JSON has them."""
        found: list[dict[str, Any]] = json.loads(
            self.execute(f"SELECT coalesce(json_agg(r), '[]') FROM ({query}) AS r")
        )
        return found

    def start(self) -> None:
        """Start the server. The first time, create its files."""
        data = self._folder / "data"
        if not data.exists():
            self._run("initdb", "-D", str(data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k '' -c fsync=off -c max_wal_size=4GB"
        self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """End the server at once."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        user = None
        if os.geteuid() == 0:
            user = next(name for name in _USERS if _exists(name))
            shutil.chown(self._folder, user)
        # Its pipes would stay open as long as the server runs.
        with (self._folder / f"{program}.out").open("w") as output:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, user=user, cwd=self._folder, check=False
            )
        assert done.returncode == 0, (self._folder / f"{program}.out").read_text()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@contextmanager
def running_postgresql(bin_folder: Path) -> Iterator[PostgreSql]:
    """Run a server that is gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-postgresql-"))
    server = PostgreSql(bin_folder, folder)
    try:
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
