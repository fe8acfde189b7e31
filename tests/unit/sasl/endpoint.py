"""A token endpoint on this machine: answers as scripted, and remembers what it was asked."""
from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs


class Request(NamedTuple):
    """A request for a token."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]

    @property
    def basic(self) -> str:
        """User and password of the Authorization header."""
        return base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()


class Server(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not like the certificate."""


class Endpoint:
    """``answers`` are (status, body) in turn, the last one for ever; a body that is no bytes is sent as JSON."""

    def __init__(self, *answers: tuple[int, Any], tls: ssl.SSLContext | None = None, encoding: str | None = None) -> None:
        self.answers = list(answers) or [(200, {"access_token": "abc", "expires_in": 3600})]
        self.asked: list[Request] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {key: values[0] for key, values in parse_qs(body).items()}
                endpoint.asked.append(Request(self.path, form, {key.lower(): value for key, value in self.headers.items()}))
                status, body = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                if encoding is not None:
                    self.send_header("Content-Encoding", encoding)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._scheme = "http" if tls is None else "https"
        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
