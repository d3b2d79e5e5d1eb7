"""An issuer of bearer tokens for tests: its keys, its tokens, and its endpoints on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER = "https://issuer.example"
AUDIENCE = "tidelog"


class Issuer:
    """Signs tokens with ES256 by its current key; earlier keys stay in its key set until they are dropped."""

    def __init__(self) -> None:
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate("first")

    def rotate(self, key_id: str, keep: bool = True) -> None:
        """Sign with a new key from now on."""
        self.keys = {**(self.keys if keep else {}), key_id: ec.generate_private_key(ec.SECP256R1())}
        self.current = key_id

    def token(self, now_s: float, **claims: Any) -> str:
        """Return a token for alice that is valid for an hour; claims replace its own, None removes one."""
        own = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s) + 3_600}
        content = {name: value for name, value in (own | claims).items() if value is not None}
        key = self.keys[self.current]
        return jwt.encode(content, key, algorithm="ES256", headers={"kid": self.current})

    def key_set(self) -> bytes:
        """Return the public keys as a JSON Web Key Set."""
        return json.dumps({"keys": [public_jwk(key, key_id) for key_id, key in self.keys.items()]}).encode()


def public_jwk(key: ec.EllipticCurvePrivateKey, key_id: str) -> dict[str, Any]:
    content: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return content | {"kid": key_id, "use": "sig"}


@dataclass
class Endpoints:
    """The answers of an issuer's endpoints, and the requests that they got: paths, forms and authorizations."""

    port: int = 0
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, list[str]], str | None]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def serving() -> Iterator[Endpoints]:
    """Serve an issuer's endpoints on loopback."""
    endpoints = Endpoints()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            endpoints.requests.append((self.path, parse_qs(body.decode()), self.headers.get("Authorization")))
            status, content = endpoints.answers.get(self.path, (404, b""))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", content.decode())
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoints.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoints
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
