"""An HTTP API on loopback that keeps its requests and fails as told."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Api:
    """An HTTP server that keeps its requests, and answers with the next of ``codes``, then 200. 0 drops the client."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.codes: list[int] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                api.requests.append((self.command, self.path, body))
                api.headers.append({name.lower(): value for name, value in self.headers.items()})
                code = api.codes.pop(0) if api.codes else 200
                if code == 0:
                    self.close_connection = True
                    return
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"no")

            do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815 - names of http.server

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
