"""Cases 83 to 89: Zarr stores."""

import json
import os
import pickle
import shutil

import numpy as np
import zarr
from numcodecs.zstd import compress

from binsparse_levels import Tensor, pack, read, write

from .corpus import CSR, READ, A, Attempt, C, I, L, U, attack, in_zarr, source

LARGE = pack([np.arange(0, 60_000, 3)], np.arange(20_000.0), 60_000, "CVEC")
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def edit(path, **changes):
    """Change keys of a metadata file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def stored_files(folder, name):
    """The files of chunks and shards of an array."""
    return sorted(
        p for p in (folder / name).rglob("*") if p.is_file() and p.name not in ("zarr.json", ".zarray", ".zattrs")
    )


@attack(83, "chunk, shard or all chunks missing", I)
def missing_chunks(folder):
    for kind, options in [("zarr", {"chunks": 1000, "shards": 4000}), ("zarr2", {"chunks": 1000}), ("zarr", {})]:
        for name in ("indices_0", "values"):
            for which in (0, -1, slice(None)):
                path = folder / f"{len(os.listdir(folder))}.zarr"
                write(path, LARGE, kind=kind, **options)
                files = stored_files(path, name)
                for file in files[which] if isinstance(which, slice) else [files[which]]:
                    file.unlink()
                yield Attempt(kind, path)


@attack(83, "chunk missing in an array of others, which leave out zeros", READ)
def chunks_of_zeros(folder):
    path = in_zarr(folder / "a", source(arrays={"values": np.zeros(4)}))
    shutil.rmtree(path / "values" / "c")
    yield Attempt("Zarr", path, Tensor("CSR", CSR.shape, CSR.arrays, np.zeros(4)).equals)


@attack(83, "chunk of indices missing in an array of others", A)
def others_without_indices(folder):
    path = in_zarr(folder / "a", source())
    shutil.rmtree(path / "indices_1" / "c")
    yield Attempt("Zarr", path)


@attack(84, "truncated shard, bad checksum", C)
def damaged_shards(folder):
    for options in ({}, {"chunks": 1000, "shards": 4000}, {"compression": "none"}, {"compression": "gzip"}):
        for change in (lambda x: x[:-1], lambda x: b"", lambda x: x[:9] + bytes([x[9] ^ 1]) + x[10:]):
            path = folder / f"{len(os.listdir(folder))}.zarr"
            write(path, LARGE, **options)
            file = stored_files(path, "values")[0]
            file.write_bytes(change(file.read_bytes()))
            yield Attempt("Zarr", path)


@attack(85, "symlink in place of a chunk, an array, metadata, a group", U)
def symlinks(folder):
    inside = ["values/c/0", "values/c", "values", "indices_1/zarr.json", "indices_1", "pointers_to_1/c/0", "zarr.json"]
    for k, place in enumerate([*inside, *inside]):
        path, out = in_zarr(folder / f"{k}", source()), folder / f"out{k}"
        os.rename(path / place, out)
        if k >= len(inside):
            shutil.rmtree(out, ignore_errors=True)
            if place.endswith(("c/0", "json")):
                os.remove(out)
                os.mkfifo(out)
        os.symlink(out, path / place)
        yield Attempt("Zarr", path)
    write(f"{folder}/a.zarr:real", CSR)
    os.rename(folder / "a.zarr" / "real", folder / "outside")
    os.symlink(folder / "outside", folder / "a.zarr" / "link")
    yield Attempt("Zarr", lambda: read(f"{folder}/a.zarr:link"))
    yield Attempt("Zarr", lambda: write(f"{folder}/a.zarr:link", CSR, overwrite=True))


@attack(85, "symlink to the whole folder", READ)
def symlink_to_all(folder):
    in_zarr(folder / "a", source())
    os.symlink(folder / "a.zarr", folder / "b.zarr")
    yield Attempt("Zarr", folder / "b.zarr", CSR.equals)


@attack(86, "`..`, absolute and `\\` names of groups", C, U)
def names_that_lead_out(folder):
    names = ["../b.zarr", "..", "x/../../b.zarr", f"{folder}/b.zarr", "..\\b.zarr", "x\\..\\b.zarr", ".", "//b.zarr"]
    for suffix in ("zarr", "h5"):
        write(f"{folder}/a.{suffix}:x", CSR)
        write(folder / f"b.{suffix}", CSR)
        for name in names:
            place = f"{folder}/a.{suffix}:{name.replace('zarr', suffix)}"
            yield Attempt("Zarr" if suffix == "zarr" else "HDF5", lambda place=place: read(place))
            if "\\" not in name and name[0] == ".":
                yield Attempt("Zarr", lambda place=place: write(place, CSR, overwrite=True))


def grid(size):
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [size]}}}


@attack(87, "chunk of 10**9 or 10**15 items", L, C)
def huge_chunks(folder):
    packed = compress(bytes(2**20), 1) * 2**11  # frames behind each other are one stream, here of 2 GB
    for k, size in enumerate([2**28, 10**9, 10**15]):
        path = in_zarr(folder / f"{k}", source())
        codecs = [BYTES, {"name": "zstd", "configuration": {"level": 1}}]
        edit(path / "values" / "zarr.json", **grid(size), codecs=codecs)
        (path / "values" / "c" / "0").write_bytes(packed)
        yield Attempt("Zarr", path)


@attack(87, "10**9 chunks of one item, none stored", L, C)
def many_chunks(folder):
    header = {"format": "DVEC", "shape": [10**9], "number_of_stored_values": 10**9, "data_types": {"values": "int8"}}
    for k, attributes in enumerate([{}, {"binsparse_levels:all_chunks_stored": True}]):
        path = in_zarr(folder / f"{k}", source(arrays={"values": np.zeros(1, "i1")}, **header))
        edit(path / "values" / "zarr.json", shape=[10**9], **grid(1), attributes=attributes)
        yield Attempt("Zarr", path)


@attack(87, "chain of 10**4 codecs, chain in chain", L, C, U)
def many_codecs(folder):
    check = {"name": "crc32c"}
    nested = BYTES
    for _ in range(100):
        inner = {"chunk_shape": [4], "codecs": [nested], "index_codecs": [BYTES, check]}
        nested = {"name": "sharding_indexed", "configuration": inner}
    for k, codecs in enumerate([[BYTES, *[check] * 10_000], [nested]]):
        path = in_zarr(folder / f"{k}", source())
        edit(path / "values" / "zarr.json", codecs=codecs)
        yield Attempt("Zarr", path)


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@attack(88, "pickle, msgpack, unknown codecs; no code runs", U, C)
def codecs(folder):
    trap = folder / "trap"
    names = ["pickle", "msgpack2", "json2", "vlen-utf8", "antigravity", "../pickle", "numcodecs.pickle", "cast_value"]
    for name in names:
        for key in ("compressor", "filters"):
            path = folder / f"{len(os.listdir(folder))}.zarr"
            write(path, CSR, kind="zarr2", compression="none")
            codec = {"id": name}
            edit(path / "values" / ".zarray", **{key: codec if key == "compressor" else [codec]}, dtype="|O")
            (path / "values" / "0").write_bytes(pickle.dumps(Payload(trap)))
            yield Attempt("Zarr 2", path)
        path = in_zarr(folder / f"{len(os.listdir(folder))}", source())
        edit(path / "values" / "zarr.json", codecs=[BYTES, {"name": name, "configuration": {}}])
        yield Attempt("Zarr", path)
    yield Attempt("Zarr", lambda: exit("code of a file has run") if trap.exists() else read(path))


@attack(88, "storage transformers, object and text types, odd chunk keys", U, C, A)
def other_extensions(folder):
    odd = [
        {"storage_transformers": [{"name": "x"}]}, {"data_type": "string"}, {"data_type": []},
        {"data_type": {"name": "variable_length_bytes"}}, {"chunk_grid": {"name": "rectangular"}}, grid(0),
        {"chunk_key_encoding": {"name": "../x"}}, {"must": {"must_understand": True}},
        {"codecs": []}, {"codecs": [5]}, {"codecs": None}, {"shape": [-4]},
        {"shape": [2**70]}, {"shape": [4.0]}, {"shape": []}, {"zarr_format": 4}, {"node_type": "x"}, {"fill_value": {}},
    ]  # fmt: skip
    for k, changes in enumerate(odd):
        path = in_zarr(folder / f"{k}", source())
        edit(path / "indices_1" / "zarr.json", **changes)
        yield Attempt("Zarr", path)


@attack(88, "metadata that are no JSON, nested, huge, a pipe", C, L, A)
def odd_metadata(folder):
    contents = [b"", b"[]", b"5", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b'{"a": ' + b"9" * 5000 + b"}", None]
    for k, content in enumerate(contents):
        for place in ("zarr.json", "values/zarr.json"):
            path = in_zarr(folder / f"{k}{place[:1]}", source())
            (path / place).unlink()
            if content is None:
                os.mkfifo(path / place)
            else:
                (path / place).write_bytes(content)
            yield Attempt("Zarr", path)


@attack(89, "metadata of versions 2 and 3 that differ", C)
def both_versions(folder):
    other = pack([[0], [0]], [9.0], (5, 5), "CSR")
    for k, place in enumerate(["", "values"]):
        path = in_zarr(folder / f"{k}", source())
        write(folder / "other.zarr", other, kind="zarr2", overwrite=True)
        for file in (folder / "other.zarr" / place).iterdir():
            if file.is_file():
                shutil.copy(file, path / place / file.name)
        yield Attempt("Zarr", path)


@attack(89, "stale consolidated metadata", READ)
def stale(folder):
    for kind in ("zarr", "zarr2"):
        path = folder / f"{kind}.zarr"
        write(path, pack([[0], [0]], [9.0], (5, 5), "CSR"), kind=kind)
        zarr.consolidate_metadata(path)
        metadata = path / ("zarr.json" if kind == "zarr" else ".zmetadata")
        consolidated = json.loads(metadata.read_text())
        write(path, CSR, kind=kind, overwrite=True)
        if kind == "zarr":
            edit(metadata, consolidated_metadata=consolidated["consolidated_metadata"])
        else:
            metadata.write_text(json.dumps(consolidated))
        yield Attempt(kind, path, CSR.equals)
