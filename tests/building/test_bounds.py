"""`memory=` bounds a fresh process, through every door."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import binsparse_levels as bl
from binsparse_levels.building.request import Request, Workers

COUNT, SHAPE = 1_500_000, (3000, 2**20)
DOORS = {
    "convert": ("a.h5", "convert('a.h5', 'b.h5', 'CSC'"),
    "convert a text": ("a.tns", "convert('a.tns', 'b.h5', 'CSC'"),
    "convert to AnnData": ("a.tns", "convert('a.tns', 'b.h5ad', 'CSC'"),
    "write_from": (None, "write_from(map(chunk, range(15)), 'b.h5', (2**20, 2**20), 'CSR', duplicates='sum'"),
    "write_from of tensors": ("a.h5", "write_from([bl.open('a.h5')], 'b.h5', (3000, 2**20), 'CSC'"),
    "build of a tensor": ("a.h5", "build('a.h5', 'b.zarr', (3000, 2**20), 'DCSC'"),
    "build of a function": (None, "build(chunk, 'b.zarr', (2**20, 2**20), 'CSR', count=15, duplicates='sum'"),
    "build of numbers": (
        "n.parquet", "build('n.parquet', 'b.zarr', (3000, 2**20), 'CSF', columns=['i', 'j', 'v'], duplicates='sum'"
    ),
    "write_from with labels": (
        None, "write_from(map(table, range(8)), 'b.h5', (None, 2**20), 'CSF', dims=['u', 'i'], values='v', labels=ids()"
    ),
    "build of texts": ("t.parquet", "build('t.parquet', 'b.zarr', None, 'CSF', columns=['u', 'i', 'v']"),
}  # fmt: skip
PROGRAM = """
import re, sys, numpy as np, binsparse_levels as bl
def chunk(k):
    rng = np.random.default_rng(k)
    return rng.integers(0, 2**20, (2, 100_000)), rng.random(100_000) + 1j
def ids():
    return {"u": [f"{k:024}" for k in range(500_000)]}
def table(k):
    import pyarrow as pa
    rng = np.random.default_rng(k)
    u = pa.array([f"{x:024}" for x in rng.integers(0, 500_000, 60_000)])
    return pa.table({"u": u, "i": k * 60_000 + np.arange(60_000), "v": rng.random(60_000)})
def call(memory):
    bl.{call}, memory=memory)
memory = 160 << 20
done = False
while not done:  # the process grows a little by each attempt
    try:
        call(memory)
        done = True
    except bl.LimitError as error:
        memory = max(memory + 1, int(re.findall("at least ([0-9]+)", str(error))[0]))
print(memory >> 10, re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[0])
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("sources"), np.random.default_rng(0)
    coords = [rng.integers(0, size, COUNT) for size in SHAPE]
    tensor = bl.pack(coords, rng.random(COUNT), SHAPE, "CSR", duplicates="last")
    bl.write(folder / "a.h5", tensor.astype(complex))
    bl.write(folder / "a.tns", tensor)
    numbers = pa.table({"i": coords[0], "j": coords[1], "v": rng.random(COUNT)})
    pq.write_table(numbers, folder / "n.parquet")
    users = pa.array([f"user-{k}" for k in rng.permutation(COUNT)])
    pq.write_table(pa.table({"u": users, "i": coords[0] % 1000, "v": rng.random(COUNT)}), folder / "t.parquet")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("door", DOORS)
def test_memory_of_a_fresh_process(tmp_path, sources, door):
    source, call = DOORS[door]
    if source is not None:
        (tmp_path / source).symlink_to(sources / source)
    command = [sys.executable, "-c", PROGRAM.replace("{call}", call)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    allowed, peak = map(int, told.split())
    assert peak <= 1.05 * allowed


@pytest.mark.slow
def test_memory_of_a_worker_does_not_bound_the_calling_process():
    """This process numbers the labels. It may use more than a worker: a notebook that has loaded tables does."""
    used = np.ones(2**26)  # 512 MiB
    workers = Workers(memory=675_000_000, used=192 << 20)
    plan = Request("CSF", workers=workers).plan((1000, 3000), here=2**29)
    assert 0 < plan.rows <= Request("CSF", workers=workers).plan((1000, 3000)).rows
    with pytest.raises(bl.LimitError, match="at least"):
        Request("CSF", workers=workers, memory=675_000_000).plan((1000, 3000), here=2**29)
    assert used.all()
