"""Open an HDF5 file at a URL, and read a row."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import binsparse_levels as bl

bl.write("matrix.h5", bl.pack([[0, 2, 2], [1, 0, 3]], [1.5, 2.5, 3.5], (4, 5), "CSR"))
with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=".")) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with bl.open(f"http://127.0.0.1:{server.server_port}/matrix.h5") as opened:
        assert opened[2:3].to_dense().tolist() == [[2.5, 0, 0, 3.5, 0]]
    server.shutdown()
