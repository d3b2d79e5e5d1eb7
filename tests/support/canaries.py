"""Secrets that can be recognized wherever they appear."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from pathlib import Path


class Canaries:
    """Makes secrets, and finds them in text, as they are and in base64."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def new(self, name: str) -> str:
        """Return a new secret."""
        return self.add(name, f"canary{secrets.token_hex(12)}")

    def add(self, name: str, secret: str) -> str:
        """Watch for a secret, such as a line of a private key, and return it."""
        self._names[secret.encode()] = name
        self._names[base64.b64encode(secret.encode())] = f"{name} in base64"
        return secret

    def found_in(self, data: bytes | str) -> list[str]:
        """Return the names of the secrets that the data contains."""
        given = data.encode() if isinstance(data, str) else data
        return [name for secret, name in self._names.items() if secret in given]

    def found_in_files(self, folder: Path, excluded: Iterable[Path] = ()) -> dict[str, list[str]]:
        """Return the names of the secrets by file of a folder."""
        files = [path for path in folder.rglob("*") if path.is_file() and path not in set(excluded)]
        assert files, folder
        found = {str(path): self.found_in(path.read_bytes()) for path in files}
        return {path: names for path, names in found.items() if names}
