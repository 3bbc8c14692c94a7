"""Reading from an object store: requests, bytes and seconds of opening, fibers and places.

    python -m bench.objects --rows 2500 --latency 0.03

An S3 server (moto) runs on loopback, behind a proxy that counts requests and makes every one of them wait.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import binsparse_levels as bl

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers import servers


def matrix(rows: int, each: int = 1000, columns: int = 100_000) -> bl.Tensor:
    """Random entries, `each` in a row on average."""
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(0, rows * columns, rows * each))
    return bl.pack((keys // columns, keys % columns), rng.random(len(keys)), (rows, columns), "CSR")


def place_of(library: str, url: str) -> Any:
    if library == "obstore":
        return url
    from zarr.storage import FsspecStore

    return FsspecStore.from_url(url)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2500, help="rows of 1,000 entries each")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds that every request waits")
    options = parser.parse_args()
    tensor = matrix(options.rows)
    rng = np.random.default_rng(1)
    places = rng.integers(0, tensor.number_of_stored_values, 50)
    coords = tuple(x[places] for x in tensor.unpack()[0])
    print(f"{tensor.number_of_stored_values:,} entries, {options.latency * 1000:.0f} ms a request\n")
    print("| library | what | requests | kB down | seconds |\n|---|---|---|---|---|")
    with servers.s3_server() as server, servers.Proxy(server) as proxy:
        os.environ |= servers.s3_environment(proxy.endpoint)
        for library in ("obstore", "s3fs"):
            place = place_of(library, f"{servers.new_bucket(proxy.endpoint)}/a.zarr")
            bl.write(place, tensor)
            proxy.latency = options.latency
            opened = measured(proxy, library, "open", lambda place=place: bl.open(place))
            for what in ("one fiber", "the same again"):
                measured(proxy, library, what, lambda opened=opened: opened[1].load())
            opened = bl.open(place)
            measured(proxy, library, "50 values at places", lambda opened=opened: opened[coords])
            measured(proxy, library, "read", lambda place=place: bl.read(place))
            proxy.latency = 0.0


def measured(proxy: Any, library: str, what: str, call: Callable[[], Any]) -> Any:
    """Print a row, and return the result."""
    with proxy.counting() as seen:
        begin = time.perf_counter()
        found = call()
        seconds = time.perf_counter() - begin
    down = sum(request.down for request in seen) / 1000
    print(f"| {library} | {what} | {len(seen)} | {down:,.0f} | {seconds:.3f} |")
    return found


if __name__ == "__main__":
    main()
