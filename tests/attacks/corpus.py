"""What a case is, the register of all cases, and how a header and arrays are put into a container without a check."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from binsparse_levels import Tensor, write

D, A, C, L, U, I = (f"{kind}Error" for kind in ("Descriptor", "Array", "Container", "Limit", "Unsafe", "Incomplete"))  # noqa: E741
FAMILY = (D, A, C, L, U, I, "FormatError", "OptionError")
READ = "read"


class Attempt(NamedTuple):
    """A place to be read, or a function to be called instead; `verify` looks at the tensor that is read."""

    container: str
    place: Any
    verify: Callable[[Tensor], Any] | None = None


class Case(NamedTuple):
    """expected: names of errors, or `read`; lenient: the same for lenient reading, None for any of the family."""

    number: int
    what: str
    expected: tuple[str, ...]
    make: Callable[[Path], Iterable[Attempt]]
    lenient: tuple[str, ...] | None = None


CASES: list[Case] = []


class Source(NamedTuple):
    """The text of a header, and arrays by name."""

    text: str | bytes
    arrays: Mapping[str, np.ndarray]


CSR = Tensor(
    "CSR",
    (3, 4),
    {"pointers_to_1": np.array([0, 1, 2, 4]), "indices_1": np.array([1, 0, 1, 3])},
    np.array([1.5, 2.5, 3.5, 4.5]),
)


def source(
    tensor: Tensor = CSR,
    *,
    arrays: Mapping[str, Any] = {},
    types: Mapping[str, Any] = {},
    drop: Iterable[str] = (),
    user: Mapping[str, Any] = {},
    **changes: Any,
) -> Source:
    """A sound tensor, with keys of its descriptor, data types and arrays changed, or with None for an array removed."""
    place: dict[str, Any] = {}
    write(place, tensor)
    inner = place.pop("binsparse")["binsparse"]
    inner["data_types"] |= types
    inner |= changes
    for key in drop:
        del inner[key]
    stored = {name: array for name, array in (place | dict(arrays)).items() if array is not None}
    return Source(json.dumps({"binsparse": inner, **user}), stored)


def raw(text: str | bytes) -> Source:
    """Any text for a header, beside sound arrays."""
    return Source(text, source().arrays)


def chain(*levels: Mapping[str, Any] | tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A `custom` object of these levels, each a pair of kind and rank, or a JSON object of its own."""
    tree: dict[str, Any] = {"level_desc": "element"}
    for level in reversed(levels):
        made = dict(level) if isinstance(level, Mapping) else {"level_desc": level[0], "rank": level[1]}
        tree = made | {"level": tree}
    return {"level": tree, **more}


def attack(
    number: int, what: str, *expected: str, lenient: tuple[str, ...] | None = None
) -> Callable[[Callable[[Path], Iterable[Attempt]]], Callable[[Path], Iterable[Attempt]]]:
    """Register a function that makes its places in a folder and yields what is to be attempted."""

    def register(make: Callable[[Path], Iterable[Attempt]]) -> Callable[[Path], Iterable[Attempt]]:
        CASES.append(Case(number, what, expected, make, lenient))
        return make

    return register


def planted(
    number: int,
    what: str,
    expected: str | tuple[str, ...],
    *sources: Source,
    verify: Callable[[Tensor], Any] | None = None,
    lenient: tuple[str, ...] | None = None,
    containers: Iterable[str] | None = None,
) -> None:
    """Register sources that are put into every container that can hold any header and array."""

    def make(folder: Path) -> Iterator[Attempt]:
        for k, each in enumerate(sources):
            for name in containers or CONTAINERS:
                yield Attempt(name, CONTAINERS[name](folder / f"{k}", each), verify)

    attack(number, what, *((expected,) if isinstance(expected, str) else expected), lenient=lenient)(make)


def in_hdf5(path: Path, source: Source) -> Path:
    path = path.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        set_hdf5_header(file, source.text)
        for name, array in source.arrays.items():
            file.create_dataset(name, data=array)
    return path


def set_hdf5_header(group: h5py.Group, text: str | bytes) -> None:
    """An attribute of fixed length holds any bytes, but no more than 64 kB of them."""
    if isinstance(text, bytes) and len(text) < 60_000:
        group.attrs["binsparse"] = np.bytes_(text)
    else:
        group.attrs.create("binsparse", text, dtype=h5py.string_dtype())


def in_zarr(path: Path, source: Source) -> Path:
    path = path.with_suffix(".zarr")
    path.mkdir()
    text = source.text.encode("utf-8", "surrogatepass") if isinstance(source.text, str) else source.text
    group = b'{"zarr_format": 3, "node_type": "group", "attributes": {"binsparse": %s}}' % text
    (path / "zarr.json").write_bytes(group)
    for name, array in source.arrays.items():
        zarr_array(path / name, array)
    return path


def zarr_array(path: Path, array: np.ndarray, **changes: Any) -> None:
    """An array of version 3 in one chunk of plain bytes."""
    order = "big" if array.dtype.byteorder == ">" else "little"
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape,
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(n, 1) for n in array.shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": {"b": False, "c": [0, 0]}.get(array.dtype.kind, 0),
        "codecs": [{"name": "bytes", "configuration": {"endian": order}}],
    }
    chunk = path.joinpath("c", *("0" for _ in array.shape))
    chunk.parent.mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps(metadata | changes))
    if array.size:
        chunk.write_bytes(array.tobytes())


def in_npz(path: Path, source: Source) -> Path:
    path = path.with_suffix(".npz")
    text = source.text.encode("utf-8", "surrogatepass") if isinstance(source.text, str) else source.text
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in {"binsparse": np.frombuffer(text, np.uint8), **source.arrays}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return path


def in_directory(path: Path, source: Source) -> Path:
    path = path.with_suffix(".bspnpy")
    path.mkdir()
    text = source.text.encode("utf-8", "surrogatepass") if isinstance(source.text, str) else source.text
    (path / "binsparse.json").write_bytes(text)
    for name, array in source.arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def in_memory(path: Path, source: Source) -> dict[str, Any]:
    return {"binsparse": source.text, **source.arrays}


CONTAINERS: dict[str, Callable[[Path, Source], Any]] = {
    "HDF5": in_hdf5, "Zarr": in_zarr, "NPZ": in_npz, "folder": in_directory, "memory": in_memory,
}  # fmt: skip
