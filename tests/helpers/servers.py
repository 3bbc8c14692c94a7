"""An S3 server on loopback, and a proxy in front of a web server that counts requests and adds latency."""

import contextlib
import http.client
import http.server
import itertools
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from typing import NamedTuple

_numbers = itertools.count()


@contextlib.contextmanager
def s3_server():
    """The address of moto in a separate process, such as http://127.0.0.1:4242."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    environment = {**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(2**26), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True, bufsize=1
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            raise RuntimeError(f"no S3 server: {''.join(lines)}")
        threading.Thread(
            target=lambda: [None for _ in process.stderr], daemon=True
        ).start()  # so that the pipe does not fill
        yield found[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def new_bucket(endpoint, name=None):
    """Make an empty bucket on a server, and return its URL, such as s3://bucket-1."""
    name = name or f"bucket-{os.getpid()}-{next(_numbers)}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    return f"s3://{name}"


def s3_environment(endpoint):
    """The environment variables that obstore, s3fs and boto use to find the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Request(NamedTuple):
    """One request through a proxy. down: number of bytes of the body of the answer."""

    method: str
    path: str
    range: str | None
    status: int
    down: int


class Proxy:
    """A web server on loopback that forwards requests and lists them.

    `requests` may be cleared at any time. latency: seconds of delay of every request. fault: called for each request;
    returns None, "reset" (before forwarding), "lost" (no answer), "cut" (half of the answer), or a status code.
    """

    def __init__(self, upstream, latency=0.0):
        self.requests = []
        self.fault = lambda: None
        self.latency = latency
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), _handler(self, upstream.removeprefix("http://"))
        )
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def down(self):
        """The number of bytes of all answers."""
        return sum(request.down for request in self.requests)

    @contextlib.contextmanager
    def counting(self):
        """The list of requests within the block."""
        before, seen = len(self.requests), []
        yield seen
        seen += self.requests[before:]


def _handler(proxy, upstream):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            self.upstream = http.client.HTTPConnection(upstream)

        def finish(self):
            self.upstream.close()
            super().finish()

        def log_message(self, *_):
            pass

        def pass_on(self):
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                body = b"".join(iter(self.read_chunk, b""))
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            time.sleep(proxy.latency)
            fault = proxy.fault()
            if fault == "reset":
                return self.reset()
            if isinstance(fault, int):
                self.send_response_only(fault, "Denied")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            hop = {"connection", "transfer-encoding", "content-length", "expect"}
            headers = {name: value for name, value in self.headers.items() if name.lower() not in hop}
            self.upstream.request(self.command, self.path, body, headers)
            answer = self.upstream.getresponse()
            data = answer.read()
            length = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
            given = self.headers.get("Range") or self.headers.get("X-Amz-Range")
            proxy.requests.append(Request(self.command, self.path, given, answer.status, len(data)))
            if fault == "lost" or (fault == "cut" and not data):
                return self.reset()
            with contextlib.suppress(ConnectionError):
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in hop:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
            self.close_connection |= fault == "cut"
            return None

        def reset(self):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

        def read_chunk(self):
            size = int(self.rfile.readline().split(b";")[0], 16)
            data = self.rfile.read(size)
            self.rfile.readline()
            return data

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    return Handler
