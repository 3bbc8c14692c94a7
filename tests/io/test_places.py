"""Where a tensor is: groups in paths and URLs, web servers, open groups and mappings, of which nothing is lost."""

import collections
import contextlib
import functools
import http.server
import io
import os
import socket
import threading

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from helpers.places import CONTAINERS, vector
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

import binsparse_levels as bl
from binsparse_levels import (
    BinsparseError,
    ContainerError,
    Format,
    OptionError,
    Sparse,
    append,
    concatenate,
    convert,
    list_tensors,
    pack,
    read,
    write,
)
from binsparse_levels import open as open_tensor
from binsparse_levels.arrays import Pieces
from binsparse_levels.containers.base import split_path
from binsparse_levels.io import describe, read_all, write_arrays


def small(value=1.0, format="CSR"):
    return pack([[0, 2], [1, 0]], [value, 2.0], (3, 4), format)


# Paths and URLs

names = st.text("ab.-_0é", min_size=1, max_size=8)
groups = st.lists(names.filter(lambda name: name.strip(".")), min_size=1, max_size=3).map("/".join)
hosts = st.sampled_from(["h", "127.0.0.1", "a.example", "[::1]", "[fe80::1]"])
users = st.sampled_from(["", "u@", "u:p@", "u:p:q@", ":@"])
ports = st.sampled_from(["", ":80", ":65535"])
drives = st.sampled_from(["", "C:/"])
folders = st.lists(names, min_size=1, max_size=3).map("/".join)
schemes = st.sampled_from(["http://", "https://", "s3://", "gs://", "simplecache::http://", "a::b::c+d://"])
urls = st.tuples(schemes, users, hosts, ports, st.just("/"), drives, folders).map("".join)
bare = st.tuples(schemes, users, hosts, ports, st.sampled_from(["", "/"])).map("".join)
chained = st.sampled_from(["zip://a.zarr::/x/a.zip", "zip://a/b::http://u:p@h:80/x.zip", "memory://a.zarr"])
local = st.sampled_from(["a.h5", "/x/a.h5", "C:/a.h5", "C:\\a.h5", "\\\\?\\C:\\a.h5", "a", "./a?b.h5", "a b", "../C:x"])


@given(path=urls | bare | chained | local, group=st.none() | groups | st.just("/"))
def test_a_colon_of_an_address_never_splits(path, group):
    if group is None:
        if path != "../C:x":
            assert split_path(path) == (path, None)
    elif len(path) > 1 and not (
        group.partition("/")[0].isdecimal() and "/" not in path.partition("://")[2] and "//" in path
    ):  # else a port
        assert split_path(f"{path}:{group}") == (path, group.strip("/"))


@given(path=urls, group=st.none() | groups, query=st.sampled_from(["?", "?a=b", "?t=12:30&u=x:y", "?a=b/c:d?e"]))
def test_a_group_stands_before_the_query(path, group, query):
    named = path if group is None else f"{path}:{group}"
    assert split_path(named + query) == (path + query, group)


@pytest.mark.parametrize("name", ["a:b", "C:x", "a.h5:g", "a:80", "a::b"])
def test_a_path_that_exists_is_not_split(tmp_path, name):
    (tmp_path / name).touch()
    for path in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name}"):
        assert split_path(path) == (f"{tmp_path}/{name}", None)
        assert split_path(f"{path}:g") == (f"{tmp_path}/{name}", "g")
    assert split_path("file:///C:/a.h5:g") == ("C:/a.h5", "g")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """What Python has for a web server: it gives no parts of files. `asked` holds what was asked of it."""

    asked = ()

    def log_message(self, *args):
        self.asked.append((self.path, self.headers.get("Authorization")))


class Ranged(Quiet):
    """One that does, and answers for what is missing with a page."""

    def do_GET(self):
        file = self.translate_path(self.path)
        try:
            with open(file, "rb") as stream:
                whole = stream.read()
        except OSError:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        first, last = 0, len(whole) - 1
        if asked:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first = int(begin) if begin else len(whole) - int(end)
            last = min(int(end), last) if end and begin else last
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(whole[first : last + 1])


class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def serving(folder, handler=Quiet, server=http.server.ThreadingHTTPServer, host="127.0.0.1"):
    """Where a server on this machine listens, and what was asked of it."""
    asked = []
    kind = type("Handler", (handler,), {"asked": asked})
    with server((host, 0), functools.partial(kind, directory=str(folder))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running.server_address[1], asked
        running.shutdown()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write(folder / "a.zarr", small(1))
    write(f"{folder / 'a.zarr'}:x/y", small(2))
    write(folder / "b.zarr", small(3), kind="zarr2")
    many = pack([np.arange(5000)], np.arange(5000.0), (5000,), "CVEC")
    write(folder / "shards.zarr", many, chunks=10, shards=1000)
    write(folder / "missing.zarr", many, chunks=10, shards=1000)
    (folder / "missing.zarr" / "values" / "c" / "3").unlink()
    return folder, many


@pytest.mark.parametrize("handler", [Quiet, Ranged])
def test_a_folder_on_a_web_server(served, handler):
    folder, many = served
    with serving(folder, handler) as (port, asked):
        for name, value in [("a.zarr", 1), ("a.zarr:/", 1), ("a.zarr:x/y", 2), ("a.zarr/x/y", 2), ("b.zarr", 3)]:
            url = f"http://127.0.0.1:{port}/{name}"
            assert read(url).equals(small(value)), name
            assert open_tensor(url)[2].load().equals(small(value)[2]), name
            assert describe(url).descriptor.shape == (3, 4)
        url = f"http://127.0.0.1:{port}/shards.zarr"
        assert read(url).equals(many)
        assert open_tensor(url)[2345] == 2345
        for ask in (read, lambda place: open_tensor(place).load()):
            with pytest.raises(BinsparseError, match="chunks are missing"):
                ask(f"http://127.0.0.1:{port}/missing.zarr")
        with pytest.raises(FileNotFoundError):
            read(f"http://127.0.0.1:{port}/nothing.zarr")
        assert not [word for _, word in asked if word]


def test_users_queries_and_addresses_of_a_web_server(served, tmp_path):
    folder, _ = served
    with serving(folder) as (port, asked):
        assert read(f"http://u:p%40@127.0.0.1:{port}/a.zarr:x/y?key=a:b&c=%2F").equals(small(2))
        assert {word for _, word in asked} == {"Basic dTpwQA=="}
        assert all(path.startswith("/a.zarr/x/y/") and path.endswith("?key=a:b&c=%2F") for path, _ in asked)
        convert(f"http://localhost:{port}/a.zarr", tmp_path / "a.h5", "COO")
        assert read(tmp_path / "a.h5").convert("CSR").equals(small(1))
        with pytest.raises(ContainerError, match="lists no groups; name a group"):
            list_tensors(f"http://127.0.0.1:{port}/a.zarr")
        with pytest.raises(ContainerError, match="for reading only"):
            write(f"http://127.0.0.1:{port}/c.zarr", small())


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_a_web_server_with_a_long_address(served):
    try:
        server = serving(served[0], server=Six, host="::1")
        with server as (port, _):
            assert read(f"http://[::1]:{port}/a.zarr:x/y").equals(small(2))
    except OSError as error:
        pytest.skip(str(error))


def test_urls_of_other_systems(tmp_path):
    for url in (f"file://{tmp_path}/a.zarr", "memory://places/a.zarr"):
        write(url, small(1))
        write(f"{url}:g/h", small(2))
        assert read(f"{url}:g/h").equals(small(2))
        assert read(url).equals(open_tensor(url).load())
        assert sorted(list_tensors(url)) == ["/", "g/h"]
        assert set(read_all(url)) == {None, "g/h"}
    assert read(f"simplecache::file://{tmp_path}/a.zarr:g/h").equals(small(2))


# Every rank that numpy has


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "name", [name for name in CONTAINERS if not name.endswith(("gzip", "plain", "deflate", "store"))]
)
@pytest.mark.parametrize("rank", [11, 12, 64])
def test_ranks_of_two_digits(tmp_path, name, rank):
    make, options = CONTAINERS[name]
    place, target = make(tmp_path), make(tmp_path / "other") if name == "memory" else make(tmp_path)
    order = tuple(np.roll(np.arange(rank), 5).tolist())
    tensor = pack([np.arange(3)] * rank, np.arange(3.0), (3,) * rank, Format((Sparse(rank),), order))
    for format in (tensor.format, *[Format((Sparse(10), *[Sparse(1)] * (rank - 10)), order)] * (rank == 11)):
        tensor = tensor.convert(format)
        write(place, tensor, overwrite=True, **options)
        assert read(place).equals(tensor)
        assert open_tensor(place).load().equals(tensor)
        assert open_tensor(place)[1].load().equals(tensor[1])
        assert open_tensor(place)[(2,) * rank] == 2
        assert list_tensors(place) == ["/"]
        append(place, tensor, axis=order[0])
        assert read(place).shape == tuple(6 if k == order[0] else 3 for k in range(rank))
        convert(place, target, f"sparse({rank})", overwrite=True, **options)
        assert len(read(target).values) == 6


# Open groups


def hdf5_file(folder):
    return h5py.File(folder / "open.h5", "a")


def hdf5_group(folder):
    return hdf5_file(folder).require_group("deep/er")


def hdf5_memory(folder):
    return h5py.File("nowhere", "w", driver="core", backing_store=False).create_group("g")


def hdf5_stream(folder):
    return h5py.File(io.BytesIO(), "w")


def zarr_root(folder):
    return zarr.open_group(folder / "open.zarr", mode="a")


def zarr_group(folder):
    return zarr_root(folder).require_group("deep/er")


def zarr_alone(folder):
    return zarr.open_group(LocalStore(folder / "alone"), path="deep/er", mode="w")


def zarr_memory(folder):
    return zarr.create_group(MemoryStore()).create_group("g")


def zarr_memory_alone(folder):
    return zarr.open_group(MemoryStore(), path="x/y", mode="w")


def zarr_version_2(folder):
    return zarr.create_group(MemoryStore(), zarr_format=2).create_group("g")


OPEN = [
    hdf5_file, hdf5_group, hdf5_memory, hdf5_stream, zarr_root, zarr_group, zarr_alone, zarr_memory, zarr_memory_alone,
    zarr_version_2,
]  # fmt: skip


def everything(group):
    """What there is in a group, and all that lies beside it."""
    if isinstance(group, h5py.Group):
        found = {}
        group.file.visititems(lambda name, x: found.update({name: x[:].tolist() if hasattr(x, "shape") else None}))
        groups = [group.file, *(x for x in map(group.file.get, list(found)) if isinstance(x, h5py.Group))]
        return found, {x.name: dict(x.attrs) for x in groups}
    if isinstance(group.store, LocalStore):
        files = sorted(file for file in group.store.root.rglob("*") if file.is_file())
        return {str(file): file.read_bytes() for file in files}
    return {key: value.to_bytes() for key, value in group.store._store_dict.items()}


def with_more(group):
    """A group that has what is no tensor's."""
    group.attrs["note"] = "mine"
    array = np.arange(5)
    group.create_dataset("mine", data=array) if isinstance(group, h5py.Group) else group.create_array(
        "mine", data=array
    )
    group.create_group("below")
    return group


@pytest.mark.sampled(3)
@pytest.mark.parametrize("make", OPEN)
def test_an_open_group_is_that_group(tmp_path, make):
    group = with_more(make(tmp_path))
    write(group, small(1))
    write(group["below"], small(2, "COO"))
    assert read(group).equals(small(1))
    assert open_tensor(group)[2].load().equals(small(1)[2])
    assert list_tensors(group) == ["/", "below"]
    assert set(read_all(group)) == {None, "below"}
    assert describe(group["below"]).descriptor.name == "COOR"
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        write(group, small(3))
    write(group, small(3, "COO"), overwrite=True)
    append(group, small(4, "COO"))
    convert(group, group["below"], "DCSR", overwrite=True)
    assert read(group["below"]).shape == (6, 4)
    concatenate([group["below"], group["below"]], group.require_group("both"))
    assert read(group["both"]).shape == (12, 4)
    assert group.attrs["note"] == "mine"
    assert group["mine"][:].tolist() == list(range(5))
    assert {"pointers_to_1", "binsparse"}.isdisjoint(group)
    group.attrs["later"] = 1  # what was written is known to the object that the caller has
    assert read(group).shape == (6, 4)
    group_names = {"below", "both"}
    assert {name for name in group if not name.startswith(("values", "indices", "mine"))} == group_names


@pytest.mark.parametrize("make", [hdf5_file, hdf5_group])
def test_what_is_written_to_an_open_file_is_in_the_file(tmp_path, make):
    group = make(tmp_path)
    large = pack([np.arange(10**5)], np.arange(1e5), (10**5,), "CVEC")
    write(group, large, compression="gzip")
    write(group, large, overwrite=True)
    assert read(group).equals(large)  # before anything is known to be on the disk
    assert open_tensor(group)[1234] == 1234
    name = group.name
    group.file.close()
    assert read(f"{tmp_path / 'open.h5'}:{name}").equals(large)
    with pytest.raises(ContainerError, match="closed"):
        read(group)
    with h5py.File(tmp_path / "open.h5") as file:
        before = everything(file)
        with pytest.raises(ContainerError, match="reading only"):
            write(file[name], small(), overwrite=True)
        assert everything(file) == before
        assert read(file[name]).equals(large)


@pytest.mark.parametrize("make", [zarr_root, zarr_group])
def test_a_zarr_group_that_is_open_for_reading(tmp_path, make):
    group = make(tmp_path)
    write(group, small())
    reading = zarr.open_group(group.store.root, path=group.path, mode="r")
    before = everything(group)
    assert read(reading).equals(small())
    with pytest.raises(ContainerError, match="reading only"):
        write(reading, small(2), overwrite=True)
    assert everything(group) == before


def refused(place):
    """Every way for a write to fail: at once, half-way, at the end."""
    arrays = dict(small(9).convert("COO").arrays)

    def broken():
        yield 1, lambda: np.zeros(1)
        raise KeyboardInterrupt

    header = {**pack([[0], [1]], [9.0], (3, 4), "COO").__binsparse_descriptor__()}
    whole = dict(pack([[0], [1]], [9.0], (3, 4), "COO").__binsparse__())
    yield lambda: write(place, small(2), overwrite=True, chunks="x")
    yield lambda: write(place, small(2), overwrite=True, compression="lzma")
    yield lambda: write(place, small(2), overwrite=True, kind="npz")
    yield lambda: write_arrays(place, header, {**whole, "values": Pieces(2, np.dtype(float), broken)}, overwrite=True)
    yield lambda: write_arrays(place, {"binsparse": {1, 2}}, {**whole, **arrays}, overwrite=True)
    yield lambda: write_arrays(place, header, {**whole, "mine": np.zeros(2)}, overwrite=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("make", OPEN)
@pytest.mark.parametrize("there", [True, False])
def test_an_open_group_is_as_it_was_where_a_write_fails(tmp_path, make, there):
    group = with_more(make(tmp_path))
    if there:
        write(group, small(1))
    before = everything(group)
    for attempt in refused(group):
        with pytest.raises((BinsparseError, TypeError, KeyboardInterrupt)):
            attempt()
        assert everything(group) == before


@pytest.mark.sampled(5)
@pytest.mark.parametrize("at", range(12))
def test_a_store_that_fails_half_way_is_given_back_as_it_was(at):
    class Failing(MemoryStore):
        left = 10**9

        async def set(self, key, value, byte_range=None):
            self.left -= 1
            if self.left == 0:
                raise OSError("the store is full")
            await super().set(key, value)

        def set_sync(self, key, value):
            self.left -= 1
            if self.left == 0:
                raise OSError("the store is full")
            super().set_sync(key, value)

    for make in (lambda store: store, zarr.create_group, lambda store: StorePath(store, "p")):
        place = make(store := Failing())
        write(place, small(1))
        before = {key: value.to_bytes() for key, value in store._store_dict.items()}
        store.left = at + 1
        try:
            write(place, small(2, "COO"), overwrite=True)
        except BinsparseError:
            assert {key: value.to_bytes() for key, value in store._store_dict.items()} == before
            assert read(place).equals(small(1))
        else:
            assert store.left > 0
            assert read(place).equals(small(2, "COO"))


def test_a_store_that_takes_nothing_back(tmp_path):
    with pytest.raises(ContainerError, match="pass the path"):
        write(ZipStore(tmp_path / "a.zip", mode="w"), small())
    write(tmp_path / "b.zarr.zip", small())
    assert read(zarr.open_group(ZipStore(tmp_path / "b.zarr.zip", mode="r"), mode="r")).equals(small())


def test_other_systems_files_that_are_open(tmp_path):
    write(tmp_path / "a.sscdf", small(1))
    write(f"{tmp_path / 'b.h5'}:g", small(2), kind="bpcells")
    with h5py.File(tmp_path / "a.sscdf") as file:
        assert read(file).equals(read(tmp_path / "a.sscdf"))
        assert open_tensor(file).load().equals(read(file))
        assert list_tensors(file) == list_tensors(tmp_path / "a.sscdf")
    with h5py.File(tmp_path / "b.h5") as file:
        assert read(file["g"]).equals(read(f"{tmp_path / 'b.h5'}:g"))
        assert list_tensors(file) == ["g"]


# Mappings


class Careful(collections.abc.MutableMapping):
    """A mapping that can fail, for good or once."""

    def __init__(self, *, once):
        self.items_, self.left, self.once = {}, 10**9, once

    def _count(self):
        self.left -= 1
        if self.left == 0 or (self.left < 0 and not self.once):
            raise OSError("full")

    def __getitem__(self, key):
        return self.items_[key]

    def __setitem__(self, key, value):
        self._count()
        self.items_[key] = value

    def __delitem__(self, key):
        self._count()
        del self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


@given(at=st.integers(1, 9), there=st.booleans(), formats=st.permutations(["CSR", "COO", "DCSR", "DMAT"]))
def test_a_mapping_that_fails_half_way_is_put_back(at, there, formats):
    mapping = Careful(once=True)
    mapping["mine"] = "note"
    if there:
        write(mapping, small(1, formats[0]), overwrite=True)
    before = dict(mapping)
    mapping.left = at
    try:
        write(mapping, small(2, formats[1]), overwrite=True)
    except OSError:
        assert mapping.items_.keys() == before.keys()
        assert all(mapping[name] is before[name] for name in before)
    else:
        assert read(mapping).equals(small(2, formats[1]))
        assert mapping["mine"] == "note"
        assert set(mapping) == {"mine", "binsparse", "values", *small(2, formats[1]).arrays}


@pytest.mark.parametrize("there", [True, False])
def test_a_mapping_is_as_it_was_where_a_write_fails(there):
    mapping = collections.UserDict(mine="note")
    if there:
        write(mapping, small(1), overwrite=True)
    before = dict(mapping)
    for attempt in list(refused(mapping))[:4]:
        with pytest.raises((BinsparseError, KeyboardInterrupt)):
            attempt()
        assert dict(mapping) == before
    with pytest.raises(FileExistsError):
        write(mapping, small(1))


# NetCDF


def test_a_netcdf_group_keeps_what_is_not_the_tensors(tmp_path):
    path = tmp_path / "a.nc"
    places = {"/": small(1), "g": small(2, "COO"), "g/h": small(3)}
    for name, tensor in places.items():
        write(f"{path}:{name}", tensor)
    with netCDF4.Dataset(path, "a") as file:
        for name in places:
            group = file[name] if name != "/" else file
            group.note = name
            group.createVariable("mine", "f8", ("dim_values",))[:] = 1.5  # on a dimension of the tensor's
    for new in (small(5, "DCSR"), pack([[0], [1]], [7.0], (3, 4), "CSC"), pack([[], []], np.zeros(0), (3, 4), "COO")):
        for name in places:
            write(f"{path}:{name}", new, overwrite=True)
            places[name] = new
            assert all(read(f"{path}:{other}").equals(tensor) for other, tensor in places.items())
    with netCDF4.Dataset(path) as file:
        for name in places:
            group = file[name] if name != "/" else file
            assert group.note == name
            assert group["mine"][:].tolist() == [1.5, 1.5]
    with netCDF4.Dataset(path, "a") as file:
        file.createGroup("z").createVariable("values", "f8", ())
    with pytest.raises(FileExistsError, match="no array of a tensor"):
        write(f"{path}:z", small())


# Cases that hostile use found


def test_names_of_any_length(tmp_path):
    path = tmp_path / ("ü" * 125 + ".h5")
    write(path, pack([[0]], [1.0], 3, "CVEC"))
    assert read(path).values.tolist() == [1]
    with pytest.raises(ContainerError):
        read("a\0b.h5")


def test_suffixes_that_are_named_can_be_written(tmp_path):
    with pytest.raises(ContainerError, match="unknown suffix; known are") as refused:
        write(tmp_path / "a.unknown", small())
    for suffix in str(refused.value).partition("known are ")[2].partition(";")[0].split(", "):
        format = "DMATC" if suffix == ".ra" else "CSR"
        write(tmp_path / f"a{suffix}", small(format=format))
        assert read(tmp_path / f"a{suffix}").to_dense().tolist() == small().to_dense().tolist()


def test_places_that_are_none(tmp_path):
    for place in (None, 5, object()):
        with pytest.raises(OptionError):
            write(place, vector())
        with pytest.raises(OptionError):
            read(place)
    with pytest.raises(TypeError):
        write(tmp_path / "a", vector(), kind="memory")
    write(f"{tmp_path}/a.zarr:g", vector())
    with pytest.raises(TypeError):
        write(f"{tmp_path}/a.zarr:h", vector(), kind="zarr2")
    for path in ("\ud800.h5", tmp_path / ("x" * 5000 + ".zarr")):
        with pytest.raises(ContainerError):
            write(path, vector())


def test_paths_of_any_bytes(tmp_path):
    for suffix in ("h5", "zarr", "npz", "bspnpy"):
        path = os.path.join(tmp_path, os.fsdecode(b"\xff.")) + suffix
        write(path, vector())
        write(path, vector(3), overwrite=True)
        assert read(path).values[0] == 3


@pytest.mark.parametrize(
    "kind", ["hdf5", "zarr", "zarr2", "npz", "directory", "rawarray_directory", "netcdf", "matrix_market"]
)
def test_an_empty_path_names_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").touch()
    with pytest.raises(ContainerError, match="empty path"):
        write("", pack([[0], [0]], [1.0], (2, 2), "CSR"), kind=kind, overwrite=True)
    assert os.listdir(tmp_path) == ["precious"]


@pytest.mark.parametrize("name", ["a.h5", "a.npz", "a.nc", "a.mtx", "a.zarr", "a.zarr.zip", "a.bspnpy", "a.bspra"])
@pytest.mark.parametrize("spelled", ["{}/", "missing/../{}"])
def test_what_is_there_is_there_however_it_is_spelled(tmp_path, name, spelled):
    first, second = (pack([[0], [0]], [x], (2, 2), "COO") for x in (1.0, 2.0))
    write(tmp_path / name, first)
    with pytest.raises((ContainerError, FileExistsError)):
        write(f"{tmp_path}/{spelled.format(name)}", second)
    assert read(tmp_path / name).equals(first)


def test_a_tilde_is_the_home_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    tensor = bl.pack([[0, 2]], [1.0, 2.0], 3, "CVEC")
    bl.write("~/a.h5:group", tensor)
    assert bl.list_tensors("~/a.h5") == ["group"]
    bl.convert("~/a.h5:group", "~/a.zarr")
    assert bl.read(tmp_path / "a.zarr").equals(tensor)
    bl.write_from([([[1]], [1.0])], "~/b.h5", 3, "CVEC")
    assert (tmp_path / "b.h5").exists()
