"""Cases 90 and 91: zip and .npy files, NetCDF, text; and 92, a short run of writes that are cut."""

import io
import os
import struct
import zipfile
import zlib

import h5py
import netCDF4
import numpy as np

from binsparse_levels import write

from .corpus import CSR, READ, A, Attempt, C, L, U, attack, in_directory, in_npz, set_hdf5_header, source
from .crashes import CONTAINERS, cut_everywhere
from .hdf5_files import deflated_zeros


def npy(shape="(4,)", descr="'<f8'", data=bytes(32), more="", version=1):
    """A .npy file whose header says anything."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}{more}}}\n".encode()
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def replaced(folder, name, content):
    """A zip file and a folder with one array replaced by that content."""
    path = folder / f"{len(os.listdir(folder))}.npz"
    whole = in_npz(folder / "whole", source())
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            new.writestr(member, content if member == f"{name}.npy" else old.read(member))
    yield Attempt("NPZ", path)
    if name != "binsparse":
        other = in_directory(folder / f"{len(os.listdir(folder))}", source())
        (other / f"{name}.npy").write_bytes(content)
        yield Attempt("folder", other)


@attack(90, "pickles", U, C)
def pickles(folder):
    class Trap:
        def __reduce__(self):
            return open, (str(folder / "trap"), "w")

    for name in ("values", "indices_1", "binsparse"):
        file = io.BytesIO()
        np.save(file, np.array([Trap()] * 4, object), allow_pickle=True)
        yield from replaced(folder, name, file.getvalue())
    yield from replaced(folder, "values", npy(descr="'|O'", data=file.getvalue()[128:]))
    yield from replaced(folder, "values", npy(descr="[('a', '|O')]"))
    assert not (folder / "trap").exists(), "code of a file has run"


@attack(90, "headers that lie", C, A)
def lies(folder):
    lies = [
        b"", b"\x93NUMPY", npy(version=9), npy(data=b""), npy("(-4,)"), npy("(5,)"), npy("(3,)"), npy("(4.0,)"),
        npy("4"), npy("(10**12,)"), npy("(2**62, 2**62)"), npy("(4,) * 9"), npy(f"({2**63},)"), npy(f"({10**12},)"),
        npy(f"(0, {10**30})"), npy(descr="'<f4'"), npy(descr="'<f4000'"), npy(descr="'<f8'" * 900),
        npy(more=", 'x': " + "1" * 20_000), npy(more=" " * 60_000),
    ]  # fmt: skip
    for lie in lies:
        yield from replaced(folder, "values", lie)


def zip_of(path, members):
    """A zip file of (name, method, packed bytes, length, checksum), each as it is given."""
    body, index = b"", b""
    for name, method, packed, length, check in members:
        head = struct.pack("<5H3L2H", 20, 0, method, 0, 0x21, check, len(packed), length, len(name), 0)
        index += b"PK\x01\x02\x14\0" + head + struct.pack("<3H2L", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + head + name.encode() + packed
    end = struct.pack("<4H2LH", 0, 0, len(members), len(members), len(index), len(body), 0)
    path.write_bytes(body + index + b"PK\x05\x06" + end)
    return path


def bomb(path, announced):
    """A vector of almost 4 GB of zeros in 4 MB."""
    count = 2**29 - 2**17
    changes = {"format": "DVEC", "shape": [announced or count], "number_of_stored_values": announced or count}
    text = source(data_types={"values": "float64"}, **changes).text
    stored, head = npy(f"({len(text)},)", "'|u1'", text.encode()), npy(f"({count},)", data=b"")
    as_it_is = b"\0" + struct.pack("<HH", len(head), len(head) ^ 0xFFFF) + head  # a block of deflate that packs nothing
    packed = as_it_is + deflated_zeros(count * 8)[2:-4]
    members = [("binsparse.npy", 0, stored, len(stored), zlib.crc32(stored))]
    members += [("values.npy", 8, packed, len(head) + count * 8, 0)]
    return Attempt("NPZ", zip_of(path, members))


@attack(90, "zip bomb of 4 GB", L)
def announced_bomb(folder):
    yield bomb(folder / "a.npz", None)


@attack(90, "zip bomb of 4 GB, another length announced", A)
def other_bomb(folder):
    yield bomb(folder / "a.npz", 4)


@attack(90, "header of 4 GB", L, C)
def huge_header(folder):
    packed = deflated_zeros(2**32 - 2**20)[2:-4]
    yield Attempt("NPZ", zip_of(folder / "a.npz", [("binsparse.npy", 8, packed, 2**32 - 2**20, 0)]))


@attack(90, "duplicate members", C)
def duplicates(folder):
    path = in_npz(folder / "a", source())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("valuez.npy", npy())
    path.write_bytes(path.read_bytes().replace(b"valuez", b"values"))
    yield Attempt("NPZ", path)


@attack(90, "`..`, absolute and `\\` names of members: beside ours, ignored", READ)
def member_names(folder):
    path = in_npz(folder / "a", source())
    with zipfile.ZipFile(path, "a") as archive:
        for name in ("../values.npy", "/values.npy", "..\\values.npy", "x/../values.npy", "./values.npy"):
            archive.writestr(name, npy())
    yield Attempt("NPZ", path, CSR.equals)


@attack(90, "zip files that are damaged: lengths, methods, encryption, checksums, cut", C, A)
def damaged_zip(folder):
    whole = in_npz(folder / "whole", source()).read_bytes()
    at, index = whole.index(b"values.npy"), whole.rindex(b"values.npy")
    for place, bytes_ in [
        (index - 22, b"\xff" * 3),
        (index - 36, b"\x09\0"),
        (index - 38, b"\1\0"),
        (at + 150, b"\xff"),
    ]:
        (folder / f"{place}.npz").write_bytes(whole[:place] + bytes_ + whole[place + len(bytes_) :])
        yield Attempt("NPZ", folder / f"{place}.npz")
    for cut in (4, 100, len(whole) // 2, len(whole) - 10):
        (folder / f"cut{cut}.npz").write_bytes(whole[:cut])
        yield Attempt("NPZ", folder / f"cut{cut}.npz")


@attack(90, "links, pipes and folders in a folder of .npy files", U, C)
def links_in_folders(folder):
    for name in ("values.npy", "binsparse.json"):
        for make in (os.mkfifo, os.mkdir, lambda x: os.symlink(folder / "outside", x), lambda x: os.symlink(x, x)):
            path = in_directory(folder / f"{len(os.listdir(folder))}", source())
            if not (folder / "outside").exists():
                (path / name).rename(folder / "outside")
            else:
                (path / name).unlink()
            make(path / name)
            yield Attempt("folder", path)


@attack(91, "NetCDF: truncated, classic, of sizes near 2**63, links, groups in place of variables", C, A, U, L)
def netcdf(folder):
    whole = folder / "whole.nc"
    write(whole, CSR)
    content = whole.read_bytes()
    classic = b"CDF\x05" + struct.pack(">qiiqq4sq", 2**63 - 1, 10, 10**9, 2**63 - 1, 2**62, b"abcd", -1)
    cut = [content[:-1], content[: len(content) // 2], b""]
    for k, data in enumerate([*cut, classic, b"CDF\x01" + bytes(100), b"CDF\x02" + b"\xff" * 99]):
        (folder / f"{k}.nc").write_bytes(data)
        yield Attempt("NetCDF", folder / f"{k}.nc")
    changes = [
        lambda file, name: file.create_group(name),
        lambda file, name: file.create_dataset(name, (2**40,), file["x"].dtype),
        lambda file, name: file.update({name: h5py.SoftLink("/x")}),
        lambda file, name: file.update({name: h5py.ExternalLink(str(whole), name)}),
        lambda file, name: file.create_dataset(name, data=file["x"][:], dtype="f2"),
    ]
    for name in ("values", "indices_1", "pointers_to_1"):
        for k, change in enumerate(changes):
            path = folder / f"{name}{k}.nc"
            path.write_bytes(content)
            with h5py.File(path, "a") as file:
                file.move(name, "x")
                change(file, name)
            yield Attempt("NetCDF", path)


@attack(91, "NetCDF: bytes behind the end, unlimited and scaled variables, other attributes", READ)
def odd_netcdf(folder):
    write(folder / "a.nc", CSR)
    with open(folder / "a.nc", "ab") as file:
        file.write(b"more")
    yield Attempt("NetCDF", folder / "a.nc", CSR.equals)
    made = source()
    with netCDF4.Dataset(folder / "b.nc", "w") as file:
        file.Conventions = "CF-1.8"
        for name, array in made.arrays.items():
            file.createDimension(name, None)
            variable = file.createVariable(name, array.dtype.str, (name,), zlib=True)
            variable[:] = array
            variable.scale_factor, variable.units = 2.0, "m"
    with h5py.File(folder / "b.nc", "a") as file:
        set_hdf5_header(file, made.text)
    yield Attempt("NetCDF", folder / "b.nc", CSR.equals)


@attack(92, "kill −9 at each step of a write, and between", READ)
def killed(folder):
    for name in CONTAINERS:
        yield Attempt(name, lambda name=name: cut_everywhere(name, folder, "kill", steps=11))
