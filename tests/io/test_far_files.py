"""Files on web servers, in buckets and in streams: as those on a disk, by few requests; what breaks is told."""

import datetime
import gc
import io
import logging
import os
import pickle
import subprocess
import sys
import threading
import zipfile

import fsspec
import h5py
import numpy as np
import obstore
import pytest
import scipy.sparse as sp
import zarr
from helpers import layouts, servers
from test_places import Quiet, Ranged, serving

import binsparse_levels as bl
from binsparse_levels.cli import main
from binsparse_levels.containers import remote
from binsparse_levels.io import describe

DENSE = (np.arange(60.0).reshape(6, 10) % 7 > 4) * np.arange(60.0).reshape(6, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of every kind that is read by ranges, with the same matrix."""
    path = tmp_path_factory.mktemp("far")
    tensor = bl.pack_dense(DENSE, "CSR")
    bl.write(path / "plain.h5", tensor)
    bl.write(path / "packed.h5", tensor, compression="gzip", chunks=3)
    bl.write(f"{path}/groups.h5:a/b", tensor)
    bl.write(path / "a.nc", tensor)
    bl.write(path / "a.npz", tensor)
    bl.write(path / "deflated.npz", tensor, compression="gzip")
    bl.write(path / "a.h5ad", tensor, overwrite=True)
    bl.write(path / "a.zarr.zip", tensor)
    bl.write(path / "a.zarr", tensor)
    sp.save_npz(path / "scipy.npz", sp.csr_array(DENSE), compressed=False)
    layouts.matlab(path / "a.mat", DENSE)
    layouts.cooler(path / "a.mcool", DENSE[:6, :6], "square", "resolutions/5")
    return path


FILES = {
    "plain.h5": "", "packed.h5": "", "groups.h5": ":a/b", "a.nc": "", "a.npz": "", "deflated.npz": "", "a.h5ad": "",
    "scipy.npz": "", "a.mat": "", "a.mcool": ":resolutions/5", "a.zarr.zip": "",
}  # fmt: skip


def agrees(place, name):
    """Assert that a place holds the matrix, for every way to read."""
    dense = DENSE[:6, :6] if name == "a.mcool" else DENSE
    assert np.array_equal(bl.read(place).to_dense(), dense)
    with bl.open(place) as tensor:
        assert np.array_equal(tensor[1:, ::2].to_dense(), dense[1:, ::2])
        assert tensor[2, 4] == dense[2, 4]
    assert describe(place).descriptor.shape == dense.shape


@pytest.mark.sampled(3)
@pytest.mark.parametrize("handler", [Ranged, Quiet])
@pytest.mark.parametrize("name", FILES)
def test_files_on_a_web_server(folder, handler, name):
    """Quiet sends no ranges, so that a file is sent whole."""
    with serving(folder, handler) as (port, asked):
        agrees(f"http://u:p@127.0.0.1:{port}/{name}{FILES[name]}?key=a:b&c=%2F", name)
        assert {word for _, word in asked} == {"Basic dTpw"}
        assert {path for path, _ in asked} == {f"/{name}?key=a:b&c=%2F"}
        tensor = bl.open(f"http://127.0.0.1:{port}/{name}{FILES[name]}")
        there = pickle.loads(pickle.dumps(tensor[1:3]))
        assert np.array_equal(there.to_dense(), tensor[1:3].to_dense())
        del tensor, there


@pytest.mark.parametrize("name", ["packed.h5", "a.npz", "a.zarr.zip", "a.zarr"])
def test_the_log_has_a_line_for_each_request(folder, caplog, name):
    """It has no secrets of the URL."""
    with serving(folder, Ranged) as (port, _), servers.Proxy(f"http://127.0.0.1:{port}") as proxy:
        url = f"{proxy.endpoint.replace('//', '//me:word@')}/{name}?key=secret"
        with caplog.at_level(logging.DEBUG, "binsparse_levels"), proxy.counting() as seen, bl.open(url) as tensor:
            tensor[1:3].load()
        lines = [line for line in caplog.messages if line.startswith("GET ")]
        there = [request.down for request in seen if request.status < 300]
        assert there
        assert sorted(int(line.split()[-2]) for line in lines if "no bytes" not in line) == sorted(there)
        assert not [line for line in caplog.messages if "word" in line or "secret" in line]
        assert main(["info", "--why", f"{proxy.endpoint}/{name}"]) == 0


@pytest.mark.parametrize("name", FILES)
def test_files_in_streams(folder, name):
    """A group stands in a path alone; a stream gives the root."""
    if FILES[name]:
        pytest.skip("the tensor is in a group")
    with open(folder / name, "rb") as file:
        agrees(file, name)
    agrees(io.BytesIO((folder / name).read_bytes()), name)
    agrees(fsspec.open(f"file://{folder / name}", "rb"), name)


def test_files_of_fsspec(folder):
    system = fsspec.filesystem("memory")
    for name in ("packed.h5", "scipy.npz"):
        system.pipe_file(f"/far/{name}", (folder / name).read_bytes())
        agrees(f"memory://far/{name}", name)
    with pytest.raises(FileNotFoundError):
        bl.read("memory://far/nothing.h5")


@pytest.mark.slow
def test_files_in_a_bucket(folder, s3):
    for name, group in FILES.items():
        obstore.store.from_url(s3).put(f"x/{name}", (folder / name).read_bytes())
        agrees(f"{s3}/x/{name}{group}", name)
    with pytest.raises(FileNotFoundError):
        bl.read(f"{s3}/nothing.h5")


def sparse_file(path, rows=50_000, width=2_000):
    """A matrix of AnnData of 0.8 GB that takes no room on the disk: of most rows nothing was written."""
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, 20_000]})
        for name, kind in (("data", "f4"), ("indices", "i4")):
            whole = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            whole.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            whole.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            array = group.create_dataset(name, (rows * width,), kind, maxshape=(None,), dcpl=whole)
            for row in (0, 20_000, 30_000):
                array[row * width : (row + 100) * width] = np.tile(np.arange(width, dtype=kind), 100)
        group.create_dataset("indptr", data=np.arange(rows + 1, dtype="i8") * width, maxshape=(None,))
        for axis, size in (("obs", rows), ("var", 20_000)):
            table = file.create_group(axis)
            table.attrs["_index"] = "_index"
            table.create_dataset("_index", (size,), h5py.string_dtype())
    return path


class Counted(Ranged):
    """Reads no more of a file than it sends, and notes how much that is."""

    def do_GET(self):
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        path = self.translate_path(self.path)
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            file.seek(int(first))
            data = file.read(min(int(last), size - 1) - int(first) + 1)
        self.asked.append((len(data), None))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        """What was asked is noted with its bytes."""


def test_a_large_file_is_opened_by_few_requests(tmp_path):
    sparse_file(tmp_path / "a.h5ad")
    with serving(tmp_path, Counted) as (port, asked):
        tensor = bl.open(f"http://127.0.0.1:{port}/a.h5ad")
        assert len(asked) <= 10
        assert sum(count for count, _ in asked) <= 8 * 2**20
        for row in (20_000, 30_000):
            del asked[:]
            part = tensor[row : row + 100].load()
            assert part.nnz == 200_000
            assert len(asked) <= 6
            assert sum(count for count, _ in asked) <= 16 * 2**20
        del tensor, part


class Hesitant(Ranged):
    """Sends its answers in small pieces, and ends the first one for each range in the middle."""

    def do_GET(self):
        self.again = (self.path, self.headers["Range"]) in self.met
        self.met.add((self.path, self.headers["Range"]))
        self.wfile, whole = io.BytesIO(), self.wfile
        super().do_GET()
        answer, self.wfile = self.wfile.getvalue(), whole
        for k in range(0, len(answer) if self.again else len(answer) // 2, 2**16):
            whole.write(answer[k : min(k + 2**16, len(answer) if self.again else len(answer) // 2)])
            whole.flush()
        self.close_connection = True


@pytest.mark.parametrize("name", ["packed.h5", "a.h5ad", "a.npz", "scipy.npz", "deflated.npz"])
def test_a_server_that_hesitates(folder, name):
    with serving(folder, type("Met", (Hesitant,), {"met": set()})) as (port, asked):
        agrees(f"http://127.0.0.1:{port}/{name}", name)
        assert len(asked) > 1


class Silent(Quiet):
    """Takes requests, and answers none of them until the test is over."""

    def do_GET(self):
        self.over.wait()


def test_a_server_that_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "TIMEOUT", datetime.timedelta(milliseconds=200))
    over = threading.Event()
    with serving(tmp_path, type("Patient", (Silent,), {"over": over})) as (port, _):
        with pytest.raises(bl.ContainerError, match=r"a\.h5.*imed out|a\.h5.*timeout"):
            bl.open(f"http://127.0.0.1:{port}/a.h5")
        over.set()


class Littered(Ranged):
    """Makes so much garbage that what there is is collected in this thread."""

    def do_GET(self):
        for _ in range(200_000):
            garbage = []
            garbage.append(garbage)
        super().do_GET()


def test_garbage_of_another_thread(tmp_path, monkeypatch):
    """HDF5 holds its lock while it waits for the server. To close a file there would wait for the lock."""
    monkeypatch.setattr(remote, "TIMEOUT", datetime.timedelta(seconds=3))
    monkeypatch.setitem(remote.RETRY, "max_retries", 0)
    path, rows = tmp_path / "big.h5", np.arange(500_000)
    bl.write(path, bl.pack([rows], rows + 0.5, len(rows), "CVEC"))
    with serving(tmp_path, Littered) as (port, _):
        tensor = bl.open(f"http://127.0.0.1:{port}/big.h5")
        thresholds = gc.get_threshold()
        gc.set_threshold(100_000)
        try:
            litter = [h5py.File(path)]
            litter.append(litter)
            del litter
            assert tensor[450_000] == 450_000.5
        finally:
            gc.set_threshold(*thresholds)
        assert gc.isenabled()


class Tagged(Ranged):
    """Says when a file was changed."""

    def end_headers(self):
        self.send_header("ETag", f'"{os.stat(self.translate_path(self.path)).st_mtime_ns}"')
        super().end_headers()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["big.h5", "big.npz"])
def test_a_file_that_changes_at_its_place(tmp_path, name):
    """Of equal size and header, so that only the server tells."""
    path, rows = tmp_path / name, np.arange(500_000)
    system = fsspec.filesystem("memory")

    def put(values):
        bl.write(path, bl.pack([rows], values, len(rows), "CVEC"), overwrite=True)
        system.pipe_file(f"/far/{name}", path.read_bytes())

    with serving(tmp_path, Tagged) as (port, _):
        for place in (f"http://127.0.0.1:{port}/{name}", f"memory://far/{name}"):
            put(rows + 0.5)
            tensor = bl.open(place)
            assert tensor[7] == 7.5
            sent = pickle.dumps(tensor)
            assert pickle.loads(sent)[450_000] == 450_000.5
            put(rows + 1.5)
            with pytest.raises(bl.ContainerError, match=rf"{name}: the file has changed since .*; open it again"):
                tensor[250_000:260_000].load()
            with pytest.raises(bl.ContainerError, match=r"the file has changed since .*; open it again"):
                pickle.loads(sent)[3]
            assert bl.open(place)[7] == 8.5
            del tensor


class Broken(Quiet):
    """Announces more bytes than it sends; with an answer for each way to fail."""

    fails = "cut"

    def log_message(self, *args):
        """Each request is noted once."""

    def do_GET(self):
        self.asked.append((self.path, None))
        if self.fails == "error":
            self.send_error(503)
            return
        begin = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + 99}/5000000")
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write((b"\x89HDF\r\n\x1a\n" + bytes(92))[: 100 if self.fails == "short" else 10])


@pytest.mark.parametrize("way", ["cut", "short", "error"])
def test_what_a_server_breaks_is_told(tmp_path, way):
    with serving(tmp_path, type("Way", (Broken,), {"fails": way})) as (port, asked):
        with pytest.raises(bl.ContainerError, match=r"a\.h5"):
            bl.read(f"http://127.0.0.1:{port}/a.h5")
        assert 0 < len(asked) <= 6


def test_a_server_that_is_not_there_is_asked_few_times():
    for place in ("a.h5", "a.zarr"):
        with pytest.raises(bl.ContainerError, match="check the address"):
            bl.read(f"http://127.0.0.1:9/{place}")


def test_a_member_of_a_zip_file_is_read(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("plain.h5", "a.npz", "a.h5ad"):
            archive.write(folder / name, name)
    with serving(tmp_path, Ranged) as (port, _):
        for where in (tmp_path / "all.zip", f"http://127.0.0.1:{port}/all.zip"):
            for name in ("plain.h5", "a.npz", "a.h5ad"):
                agrees(f"zip://{name}::{where}", name)
            with pytest.raises(FileNotFoundError, match="check the address"):
                bl.open(f"zip://b.h5::{where}")


@pytest.mark.filterwarnings("ignore:Writing zarr v2", "ignore:The '.*' option is deprecated")  # of anndata 0.13
def test_anndata_of_zarr_on_a_web_server(tmp_path):
    """A server lists nothing, so that each member is asked for by name."""
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(sp.csr_array(DENSE), layers={"columns": sp.csc_array(DENSE)}, obsm={"cells": DENSE})
    cells.write_zarr(tmp_path / "a.zarr")
    with serving(tmp_path, Ranged) as (port, _):
        for name in ("", ":X", ":layers/columns", ":obsm/cells"):
            agrees(f"http://127.0.0.1:{port}/a.zarr{name}", name)
        assert bl.open(f"http://127.0.0.1:{port}/a.zarr").labels("obs").tolist() == cells.obs_names.tolist()


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore")  # consolidated metadata are no part of version 3
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("listed", ["whole", "stale", "none"])
@pytest.mark.parametrize("handler", [Ranged, Quiet])
def test_rows_of_anndata_in_zarr_take_few_requests(tmp_path, version, listed, handler):
    """Consolidated metadata are believed where they agree with those of the group."""
    anndata = pytest.importorskip("anndata")
    path = tmp_path / "a.zarr"
    with anndata.settings.override(zarr_write_format=version):
        if listed == "stale":
            anndata.AnnData(sp.csr_array(DENSE[:4])).write_zarr(path)
        else:
            anndata.AnnData(sp.csr_array(DENSE), layers={"more": sp.csc_array(DENSE)}).write_zarr(path)
        zarr.consolidate_metadata(path)
        file = path / (".zmetadata" if version == 2 else "zarr.json")
        old = file.read_text()
        if listed == "stale":
            anndata.AnnData(sp.csr_array(DENSE), layers={"more": sp.csc_array(DENSE)}).write_zarr(path)
            file.write_text(old)
        elif listed == "none":
            zarr.open_group(path, mode="r+", use_consolidated=False).attrs["touched"] = True
            file.unlink() if version == 2 else None
    with serving(tmp_path, handler) as (port, asked):
        for name in ("", ":X", ":layers/more"):
            del asked[:]
            part = bl.open(f"http://127.0.0.1:{port}/a.zarr{name}")[1:3]
            assert np.array_equal(part.to_dense(), DENSE[1:3])
            assert len(asked) <= (24 if listed == "whole" else 100)  # 8 and 67, more of what newer anndata writes


def test_a_table_says_what_takes_it(tmp_path):
    (tmp_path / "a.csv").write_text("i,n\n1,2\n")
    for place in (tmp_path / "a.csv", "http://127.0.0.1:9/a.parquet"):
        with pytest.raises(bl.ContainerError, match=r"is a table.*from_table"):
            bl.open(place)


def test_what_is_not_there_is_called_by_its_url(tmp_path, s3):
    bl.write(tmp_path / "a.zarr", bl.pack_dense(DENSE, "CSR"))
    with serving(tmp_path, Ranged) as (port, _):
        for root in (f"http://127.0.0.1:{port}", s3, "memory://nowhere"):
            for place in ("b.zarr", "b.zarr:group"):
                with pytest.raises(FileNotFoundError, match=f"^{root}/{place}: .*; check the path"):
                    bl.open(f"{root}/{place}")
        with pytest.raises(FileNotFoundError, match=r"a\.zarr:group: .*; check the path"):
            bl.open(f"http://127.0.0.1:{port}/a.zarr:group")
    with pytest.raises(bl.ContainerError, match=r"^s3://bucket/a\.h5: .* local disk only"):
        bl.write("s3://bucket/a.h5", bl.pack_dense(DENSE, "CSR"))


@pytest.mark.slow
def test_a_file_that_breaks_while_it_is_open(folder, tmp_path):
    big = tmp_path / "big.h5"
    bl.write(big, bl.pack([np.arange(1_500_000)], np.arange(1_500_000.0), (1_500_000,), "CVEC"))
    whole = big.read_bytes()
    with serving(tmp_path, Ranged) as (port, _):
        tensor = bl.open(f"http://127.0.0.1:{port}/big.h5")
        big.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(bl.BinsparseError):
            tensor.load()
        big.unlink()
        with pytest.raises(bl.BinsparseError):
            tensor[700_000:800_000].load()
        del tensor


@pytest.mark.parametrize(
    ("name", "content"), [("a.mtx", b"%%MatrixMarket"), ("a.tns", b"1 1 1\n"), ("a.ra", b"rawarray")]
)
def test_what_only_a_disk_has(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with serving(tmp_path, Ranged) as (port, _), pytest.raises(bl.ContainerError, match="from a local disk; download"):
        bl.read(f"http://127.0.0.1:{port}/{name}")
    with pytest.raises(bl.ContainerError, match="from a local disk; download"):
        bl.read(io.BytesIO(content))


@pytest.mark.slow
def test_a_process_may_end_with_a_file_open(folder):
    """The HDF5 library calls Python when it closes a file, which Python has to be there for."""
    script = "import sys, binsparse_levels as bl; kept = bl.open(sys.argv[1]); print(kept.shape)"
    with serving(folder, Ranged) as (port, _):
        place = f"http://127.0.0.1:{port}/packed.h5"
        made = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (0, "(6, 10)\n"), made.stderr
