"""Read rows of an `.h5ad` file from a web server, an fsspec store and a stream."""

import io
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec

import binsparse_levels as bl

bl.write("cells.h5ad", bl.pack([[0, 2, 2], [1, 0, 3]], [1.5, 2.5, 3.5], (4, 5), "CSR"))
content = Path("cells.h5ad").read_bytes()
fsspec.filesystem("memory").pipe_file("/cells.h5ad", content)
with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=".")) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for place in (f"http://127.0.0.1:{server.server_port}/cells.h5ad", "memory://cells.h5ad", io.BytesIO(content)):
        with bl.open(place) as opened:
            assert opened[2:3].to_dense().tolist() == [[2.5, 0, 0, 3.5, 0]]
    server.shutdown()
