"""Open a Zarr folder at an HTTP address with a port."""

import functools
import http.server
import threading

import numpy as np

import binsparse_levels as bl


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


bl.write("a.zarr", np.eye(100))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="."))
threading.Thread(target=server.serve_forever, daemon=True).start()
tensor = bl.open(f"http://127.0.0.1:{server.server_port}/a.zarr")
assert tensor[7, 7] == 1
assert tensor[3:5].to_dense().sum() == 2
server.shutdown()
