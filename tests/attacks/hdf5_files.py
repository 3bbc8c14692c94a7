"""Cases 69 to 82: HDF5 files."""

import fcntl
import itertools
import json
import os
import zlib

import h5py
import numpy as np

from binsparse_levels import list_tensors, read, write

from .corpus import CSR, READ, A, Attempt, C, D, L, U, attack, in_hdf5, set_hdf5_header, source

NAMES = ["pointers_to_1", "indices_1", "values", "fill_value"]
FILLED = source(fill=True, types={"fill_value": "float64"}, arrays={"fill_value": np.zeros(1)})
counter = itertools.count()


def opened(folder, mode="a"):
    """A sound file, open for changes."""
    return h5py.File(in_hdf5(folder / f"{next(counter)}", FILLED), mode)


def changed(folder, change):
    """Files in which each dataset in turn is taken away and put back by change(file, name, array)."""
    for name in NAMES:
        with opened(folder) as file:
            array = file[name][...]
            del file[name]
            change(file, name, array)
        yield Attempt("HDF5", file_name(folder))


def file_name(folder):
    """The file that was made last."""
    return max(folder.glob("[0-9]*.h5"), key=lambda path: int(path.stem))


def linked(link):
    return lambda file, name, _: file.update({name: link(name)})


def outside(folder):
    """Another file with sound arrays, and a pipe: whoever opens it waits."""
    pipe = folder / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    return [str(in_hdf5(folder / "outside", FILLED)), str(pipe)]


def deflated_zeros(count):
    """A zlib stream of that many bytes, of one block that is repeated; its checksum is known without them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\x9c" + block * (count // 2**20) + packer.flush() + (count % 65521 << 16 | 1).to_bytes(4, "big")


def vector(path, count, announced=None, packed=b"", **options):
    """A dense vector of zeros; `packed`, where it is given, is every one of its chunks."""
    count_told = announced or count
    text = source(
        format="DVEC", shape=[count_told], number_of_stored_values=count_told, data_types={"values": "float64"}
    ).text
    with h5py.File(path, "w") as file:
        set_hdf5_header(file, text)
        made = file.create_dataset("values", (count,), "f8", **options)
        for k in range(-(-count // made.chunks[0])) if packed else ():
            made.id.write_direct_chunk((k * made.chunks[0],), packed)
    return Attempt("HDF5", path)


@attack(69, "not HDF5, empty, truncated, a pipe", C)
def no_hdf5(folder):
    whole = in_hdf5(folder / "whole", FILLED).read_bytes()
    contents = [b"", b"\0" * 5000, b"hello", whole[:8], whole[:96], whole[: len(whole) // 2], whole[:-1], whole[8:]]
    for k, content in enumerate(contents):
        (folder / f"{k}.h5").write_bytes(content)
        yield Attempt("HDF5", folder / f"{k}.h5")
    os.mkfifo(folder / "pipe.h5")
    yield Attempt("HDF5", folder / "pipe.h5")
    (folder / "folder.h5").mkdir()
    yield Attempt("HDF5", folder / "folder.h5")


@attack(70, "external link", U)
def external_links(folder):
    for other in outside(folder):
        yield from changed(folder, linked(lambda name, other=other: h5py.ExternalLink(other, name)))


@attack(71, "soft link, and a loop of them", U)
def soft_links(folder):
    def loop(file, name, _):
        file[name], file["loop"] = h5py.SoftLink("/loop"), h5py.SoftLink(f"/{name}")

    yield from changed(folder, linked(lambda name: h5py.SoftLink(f"/{next(x for x in NAMES if x != name)}")))
    yield from changed(folder, linked(lambda name: h5py.SoftLink("/nowhere")))
    yield from changed(folder, loop)


@attack(71, "cycle of hard links", READ, C)
def hard_links(folder):
    with opened(folder) as file:
        file["a/b/c"] = file["/"]
        file["a/up"] = file["a"]
    path = file_name(folder)
    yield Attempt("HDF5", path)
    yield Attempt("HDF5", lambda: list_tensors(path))
    yield Attempt("HDF5", lambda: read(f"{path}:{'a/up/' * 500}b/c"))
    yield from changed(folder, lambda file, name, _: file.update({name: file["/"]}))


@attack(72, "virtual dataset", U)
def virtual(folder):
    for other in [*outside(folder), "."]:

        def change(file, name, array, other=other):
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            layout[:] = h5py.VirtualSource(other, name, array.shape)
            file.create_virtual_dataset(name, layout)

        yield from changed(folder, change)


@attack(73, "external raw storage", U)
def external_storage(folder):
    for other in [*outside(folder), str(folder / "missing")]:

        def change(file, name, x, other=other):
            file.create_dataset(name, x.shape, x.dtype, external=[(other, 0, x.nbytes)])

        yield from changed(folder, change)


@attack(74, "link in the middle of a path", U)
def links_between(folder):
    for other in outside(folder):
        with opened(folder) as file:
            file["deep"], file["out"] = h5py.SoftLink("/"), h5py.ExternalLink(other, "/")
        for group in ("deep", "out", "deep/out", "deep/x"):
            place = f"{file_name(folder)}:{group}"
            yield Attempt("HDF5", lambda place=place: read(place))
            yield Attempt("HDF5", lambda place=place: write(place, CSR, overwrite=True))


@attack(75, "unknown filter", U)
def unknown_filters(folder):
    for number in (256, 305, 40000, 65535):

        def change(file, name, array, number=number):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk(array.shape)
            properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
            kind, space = h5py.h5t.py_create(array.dtype), h5py.h5s.create_simple(array.shape)
            made = h5py.h5d.create(file.id, name.encode(), kind, space, properties)
            made.write_direct_chunk((0,), array.tobytes())

        yield from changed(folder, change)


@attack(76, "8 TiB, nothing stored", L)
def nothing_stored(folder):
    for k, options in enumerate([{}, {"chunks": (2**20,)}, {"chunks": (2**20,), "compression": "gzip"}]):
        yield vector(folder / f"{k}.h5", 2**40, **options)


@attack(76, "8 TiB, nothing stored, another length announced", A)
def nothing_stored_or_announced(folder):
    yield from changed(folder, lambda file, name, x: file.create_dataset(name, (2**40,), x.dtype))


@attack(77, "6 GB of zeros in 6 MB of gzip", L)
def gzip_bomb(folder):
    yield vector(folder / "a.h5", 3 * 2**28, packed=deflated_zeros(2**26), chunks=(2**23,), compression="gzip")


@attack(77, "6 GB of zeros in 6 MB of gzip, another length announced", A)
def gzip_bomb_beside(folder):
    yield vector(folder / "a.h5", 3 * 2**28, 4, packed=deflated_zeros(2**26), chunks=(2**23,), compression="gzip")


@attack(77, "four values in a chunk of 2 GB", L)
def one_large_chunk(folder):
    options = {"chunks": (2**28,), "maxshape": (None,), "compression": "gzip"}
    yield vector(folder / "a.h5", 4, packed=deflated_zeros(2**31), **options)


@attack(78, "group or named type in place of a dataset", C)
def groups(folder):
    yield from changed(folder, lambda file, name, _: file.create_group(name))
    yield from changed(folder, lambda file, name, x: file.update({name: x.dtype}))


@attack(79, "object, variable-length, compound, enum, opaque, reference types", A, C)
def other_types(folder):
    types = [
        h5py.string_dtype(),
        h5py.vlen_dtype("f8"),
        h5py.ref_dtype,
        h5py.regionref_dtype,
        "V8",
        "S8",
        "f8,f8",
        "f2",
    ]
    types += [h5py.enum_dtype({"A": 0, "B": 1}, basetype="i4"), h5py.opaque_dtype("M8[s]"), np.dtype(("f8", (3,)))]
    for kind in types:
        yield from changed(folder, lambda file, name, x, kind=kind: file.create_dataset(name, x.shape, kind))


def attributes(folder, *values):
    """Files with something else for a header."""
    for value in values:
        with opened(folder) as file:
            file.attrs["binsparse"] = value
        yield Attempt("HDF5", file_name(folder))


@attack(80, "attribute no string: number, arrays, nothing", C, D)
def other_attributes(folder):
    yield from attributes(folder, h5py.Empty("S1"), h5py.Empty("f8"), 5, 1.5, [1, 2], np.zeros(0), np.zeros(1))
    two = np.array([source().text] * 2, h5py.string_dtype())
    yield from attributes(folder, two, np.array([[b"{}"]]), np.bytes_(b""), np.void(b"{}"), np.zeros(100, "f8,i4"))


@attack(80, "attribute as bytes, padded, as an array of one", READ)
def attributes_of_bytes(folder):
    text = FILLED.text
    yield from attributes(folder, np.bytes_(text), np.array([text], h5py.string_dtype()), np.bytes_(text + " " * 1000))


@attack(80, "attribute of 20 MB", L)
def huge_attribute(folder):
    for k, value in enumerate([np.bytes_(b"x" * 20_000_000), "x" * 20_000_000]):
        with h5py.File(folder / f"{k}.h5", "w", libver="latest") as file:
            file.attrs["binsparse"] = value
        yield Attempt("HDF5", folder / f"{k}.h5")


@attack(1, "not UTF-8, in a string that HDF5 calls UTF-8", D)
def no_utf8(folder):
    for text in (FILLED.text.replace("CSR", "C\xffR"), FILLED.text.replace("{", '{"\xff": 1, ', 1)):
        with opened(folder) as file:
            file.attrs.create("binsparse", text.encode("latin1"), dtype=h5py.string_dtype())
        yield Attempt("HDF5", file_name(folder))


@attack(81, "checksums that do not fit", C)
def checksums(folder):
    for each in changed(
        folder, lambda file, name, x: file.create_dataset(name, data=x, chunks=x.shape, fletcher32=True)
    ):
        content = bytearray(each.place.read_bytes())
        with h5py.File(each.place) as file:
            (chunk,) = (file[name].id.get_chunk_info(0) for name in NAMES if file[name].chunks)
        content[chunk.byte_offset] ^= 1
        each.place.write_bytes(content)
        yield each


@attack(82, "locked by another writer, left open by one that died", C)
def locked(folder):
    path = in_hdf5(folder / "a", FILLED)
    with open(path, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Attempt("HDF5", path)
    with h5py.File(folder / "b.h5", "w", libver="latest") as file:
        set_hdf5_header(file, json.dumps({}))
        file.swmr_mode = True
        file.flush()
        (folder / "c.h5").write_bytes((folder / "b.h5").read_bytes())
    yield Attempt("HDF5", folder / "c.h5")
