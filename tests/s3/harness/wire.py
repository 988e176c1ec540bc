"""HTTP over bare sockets: what no well-behaved client library would send."""

import http.client
import re
import socket
from dataclasses import dataclass

from .sigv4 import UNSIGNED, Signer


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def code(self):
        """S3's error code, if the body has one."""
        found = re.search(rb"<Code>([^<]*)</Code>", self.body)
        return found.group(1).decode() if found else None


class Wire:
    """One connection."""

    def __init__(self, server, timeout=20):
        self.socket = socket.create_connection(server.address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends bytes. A server that has hung up already may still have left its reply."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def half_close(self):
        """Says that nothing more will be sent, unless the server has hung up already."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def reply(self, method="GET"):
        """The next reply, interim ones passed over; None if the server hung up without one."""
        try:
            response = http.client.HTTPResponse(self.socket, method=method)
            response.begin()
            body = response.read()
        except (http.client.BadStatusLine, ConnectionResetError):
            return None
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, body)

    def hung_up(self):
        """Whether the server closes the connection, without sending any more, in time."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def head(method, target, headers):
    """The bytes of a request up to its body."""
    lines = [f"{method} {target} HTTP/1.1"] if isinstance(target, str) else None
    first = lines[0].encode() if lines else method.encode() + b" " + target + b" HTTP/1.1"
    fields = [name.encode() + b": " + (value if isinstance(value, bytes) else value.encode("latin-1"))
              for name, value in headers.items()]
    return b"\r\n".join([first, *fields, b"", b""])


def exchange(server, data, method="GET", timeout=20):
    """Sends bytes on a connection of their own and reads the reply."""
    with Wire(server, timeout) as wire:
        wire.send(data)
        return wire.reply(method)


def request(server, method, target, headers=None, body=b"", payload=UNSIGNED, signer=None,
            unsigned=(), framed=True):
    """A request with a signature by header. `unsigned` names headers left out of the signature."""
    signer = signer or Signer()
    headers = {"host": server.host, **(headers or {})}
    if framed and (body or method in ("PUT", "POST")):
        headers.setdefault("content-length", str(len(body)))
        unsigned = {*unsigned, "content-length"}
    signed = signer.headers(method, target, headers, payload, unsigned)
    return exchange(server, head(method, target, signed) + body, method)


def plain(server, method, target, headers=None, body=b""):
    """A request without a signature of its own, for presigned targets."""
    headers = {"host": server.host, **(headers or {})}
    if body or method in ("PUT", "POST"):
        headers.setdefault("content-length", str(len(body)))
    return exchange(server, head(method, target, headers) + body, method)
