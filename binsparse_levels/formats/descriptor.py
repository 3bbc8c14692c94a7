"""The Binsparse descriptor: JSON ⇄ Descriptor. One pass finds every fault and its path.

Parsing is strict by default. Lenient parsing repairs known deviations of other writers and reports each repair.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..errors import BinsparseError, DescriptorError, Problem, raise_if
from ..levels import Sparse, places
from ..limits import INT64_MAX, Limits
from .dictionary import CODE_TYPES, CODES
from .dtypes import DataType, parse_dtype
from .extensions import MAP, PACKED, PARTS, parse_older_map, parse_rooted, rooted
from .format import ALIASES, SYNONYMS, Format, named
from .index_map import IndexMap
from .json import RESERVED
from .structure import structure_problems

NAMESPACE = "binsparse"
VERSION = "0.1.0"
VERSIONS = re.compile(
    r"0\.1(\.(0|[1-9][0-9]{0,8})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?)?"
)
_KEYS = {
    "version", "format", "custom", "shape", "number_of_stored_values", "data_types", "fill", "structure", "attributes",
    "attrs",
}  # fmt: skip


@dataclass(frozen=True)
class Descriptor:
    """A consistent descriptor. The arrays have not been compared with it.

    format, shape: of the stored tensor, which differs from the tensor if there is a map. number_of_stored_values: None
    only if lenient parsing accepted its absence. data_types: a type for every array of the format, `values`, `codes` if
    they are a dictionary, and `fill_value` if there is one. user: the user's JSON. extra: keys of this package next to
    the namespace. repairs: the repairs of lenient parsing.
    """

    format: Format
    shape: tuple[int, ...]
    number_of_stored_values: int | None
    data_types: Mapping[str, DataType]
    name: str | None = None
    structure: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION
    repairs: tuple[str, ...] = ()
    map: IndexMap | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the stored dimensions."""
        return tuple(map(self.shape.__getitem__, self.format.order))

    @property
    def fill(self) -> bool:
        return "fill_value" in self.data_types

    def header(self, *, alias: bool = True) -> dict[str, Any]:
        """The JSON object of a container (Binsparse 0.1, section 3). alias: use the predefined name, if any."""
        name = self.format.alias if alias else None
        packed, parts = any(x.wrapper or x.dictionary for x in self.data_types.values()), PARTS in self.extra
        inner: dict[str, Any] = {"version": self.version, "format": name or "custom"}
        if packed or parts or self.map is not None:
            inner["format"] = "custom"
            inner["custom"] = rooted((ALIASES[name] if name else self.format).custom(), packed, self.map, parts)
        elif name is None:
            inner["custom"] = self.format.custom()
        inner["shape"] = list(self.shape if self.map is None else self.map.shape)
        inner["number_of_stored_values"] = self.number_of_stored_values
        inner["data_types"] = {array: str(data_type) for array, data_type in self.data_types.items()}
        if self.fill:
            inner["fill"] = True
        if self.structure is not None:
            inner["structure"] = self.structure
        if self.attributes:
            inner["attributes"] = dict(self.attributes)
        return {NAMESPACE: inner, **self.user, **self.extra}


@lru_cache(256)  # called several times for each file
def array_classes(format: Format) -> Mapping[str, str]:
    """The class of each array of a format by its stored name, from the root down."""
    chain = places(format.levels, (0,) * format.rank)
    return {spec.name: spec.holds for place in chain for spec in place.arrays.values()}


def parse_descriptor(header: Any, limits: Limits, *, lenient: bool = False) -> Descriptor:
    """The descriptor in a container's JSON. Raises DescriptorError with every fault, LimitError."""
    return _Parser(limits, lenient).parse(header)


class _Parser:
    """Parses a header and collects faults and repairs."""

    def __init__(self, limits: Limits, lenient: bool) -> None:
        self.limits = limits
        self.lenient = lenient
        self.problems: list[Problem] = []
        self.repairs: list[str] = []
        self.map: IndexMap | None = None
        self.root: str | None = None  # the first level, if it changes the meaning of those below

    def fault(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def repair(self, path: str, message: str) -> bool:
        """Return True if this is to be repaired. Strict parsing adds a problem instead."""
        if self.lenient:
            self.repairs.append(f"{path}: {message}")
        else:
            self.fault(path, f"{message}; read(…, lenient=True) repairs it")
        return self.lenient

    def parse(self, header: Any) -> Descriptor:
        if not isinstance(header, dict):
            raise DescriptorError(Problem("", f"expected a JSON object, got {header!r:.60}"))
        inner, rest = self.namespace(header)
        self.keys(inner)
        version = self.version(inner)
        shape = self.shape(inner)
        if shape is not None:
            self.limits.hold("rank", len(shape), "shape", "the number of dimensions")
        format = self.format(inner, shape)
        if format is not None and shape is not None and format.rank == 1 and shape[1:] == (1,) and self.map is None:
            self.repair("shape", f"expected one size for a vector, got {list(shape)}")
            shape = shape[:1]
        if inner.get("format") == "COO" and shape is not None and len(shape) > 2:  # as ehrdata writes it
            self.repair("format", f"COO has two dimensions, got {list(shape)}")
            inner, format = {**inner, "format": "custom"}, Format((Sparse(len(shape)),))
        stored = shape
        if shape is None:
            format = None  # it cannot be checked further
        elif MAP in rest and self.map is not None:
            self.fault(MAP, "a level at the root already defines the map; remove this key")
        elif MAP in rest:
            self.map = self.older_map(rest[MAP], shape)
        elif self.map is not None:
            stored = self.map.stored_shape
        if self.map is not None:
            ranks = len(self.map.shape), len(self.map.groups)
            self.limits.hold("rank", max(ranks), "custom", "the number of dimensions, of the tensor or stored,")
        if stored is not None and format is not None and format.rank != len(stored):
            path = "shape" if self.map is None else "custom"
            self.fault(path, f"expected {format.rank} dimensions, as the format {format!s:.80} has, got {stored}")
            format = None
        count = self.count(inner, format, stored)
        data_types = self.data_types(inner, format)
        values = data_types.get("values")
        structure = self.structure(inner, shape, values.dtype if values else None)
        if self.map is not None and structure is not None:
            self.fault("structure", f"a matrix that is {structure} has no map; omit one")
        attributes = self.object(inner, "attributes")
        user = self.object(inner, "attrs") | rest  # Finch.jl writes the attributes of the user there
        if NAMESPACE in user:
            self.fault(f"attrs.{NAMESPACE}", "this name is reserved for the descriptor; choose another")
        if self.root == PARTS and PARTS not in rest:
            self.fault(PARTS, "missing, though the first level requires it")
        raise_if(DescriptorError, self.problems)
        assert format is not None
        assert stored is not None
        name = inner.get("format")
        return Descriptor(
            format,
            stored,
            count,
            data_types,
            None if name == "custom" else name,
            structure,
            attributes,
            {key: value for key, value in user.items() if not key.startswith(RESERVED)},
            version or VERSION,
            tuple(self.repairs),
            self.map,
            {key: rest[key] for key in rest if key.startswith(RESERVED) and key not in {MAP, PARTS} - {self.root}},
        )

    def object(self, inner: dict[str, Any], key: str) -> dict[str, Any]:
        value = inner.get(key, {})
        if isinstance(value, dict):
            return value
        self.fault(key, f"expected an object, got {value!r:.60}")
        return {}

    def older_map(self, value: Any, stored: tuple[int, ...]) -> IndexMap | None:
        try:
            return parse_older_map(value, stored)
        except DescriptorError as error:
            self.problems += error.problems
            return None

    def namespace(self, header: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if NAMESPACE in header:
            inner = header[NAMESPACE]
            if not isinstance(inner, dict):
                raise DescriptorError(Problem(NAMESPACE, f"expected an object, got {inner!r:.60}"))
            return inner, {key: value for key, value in header.items() if key != NAMESPACE}
        if not self.repair(NAMESPACE, "missing; the descriptor is at the top level"):
            raise DescriptorError(self.problems)
        return header, {}

    def keys(self, inner: dict[str, Any]) -> None:
        for key in inner:
            if key not in _KEYS and not (key == "tensor" and "custom" not in inner):
                self.repair(key, "no such key in a descriptor")

    def integer(self, value: Any, path: str) -> int | None:
        """A JSON integer within 0 … 2**63 - 1."""
        if type(value) is float and value.is_integer():
            if not self.repair(path, f"{value} is not written as an integer"):
                return None
            value = int(value)
        if type(value) is not int:
            self.fault(path, f"expected an integer, got {value!r:.60}")
        elif not 0 <= value <= INT64_MAX:
            self.fault(path, f"{value!s:.60} is not in 0 … 2**63 - 1")
        else:
            return value
        return None

    def repaired(self, custom: dict[str, Any], path: str) -> dict[str, Any]:
        """Lenient parsing: the custom object with integers for ranks and dimensions such as 2.0, and today's names."""

        def whole(value: Any) -> Any:
            if type(value) is float and value.is_integer() and self.lenient:
                self.repair(path, f"{value} is not written as an integer")
                return int(value)
            return value

        def item(key: str, value: Any) -> tuple[str, Any]:
            if key == "transpose" and isinstance(value, list):
                return key, [whole(k) for k in value]
            name = "level_desc" if (path, key) == ("tensor", "level_kind") else key
            return name, whole(value) if key == "rank" else value

        root: dict[str, Any] = {"level": custom}
        level = root
        while isinstance(level.get("level"), dict):  # recursion would limit the depth
            level["level"] = dict(itertools.starmap(item, level["level"].items()))
            level = level["level"]
        changed: dict[str, Any] = root["level"]
        return changed

    def version(self, inner: dict[str, Any]) -> str | None:
        version = inner.get("version")
        if "version" not in inner:
            self.repair("version", "missing")
        elif not isinstance(version, str) or len(version) > 64 or not VERSIONS.fullmatch(version):
            self.fault("version", f"expected 0.1 or 0.1.x, got {version!r:.60}")
        else:
            return version
        return None

    def shape(self, inner: dict[str, Any]) -> tuple[int, ...] | None:
        shape = inner.get("shape")
        if not isinstance(shape, list):
            self.fault("shape", "missing" if shape is None else f"expected a list of integers, got {shape!r:.60}")
            return None
        sizes: list[Any] = [self.integer(size, f"shape[{k}]") for k, size in enumerate(shape)]
        return None if None in sizes else tuple(sizes)

    def format(self, inner: dict[str, Any], shape: tuple[int, ...] | None) -> Format | None:
        name = inner.get("format")
        custom = inner.get("custom")
        path = "custom"
        if "tensor" in inner and "custom" not in inner:
            self.repair("tensor", "an older name of custom, with level_kind for level_desc")
            path, custom = "tensor", inner["tensor"]
        tree = None
        if path in inner:
            if not isinstance(custom, dict):
                self.fault(path, f"expected an object, got {custom!r:.60}")
                return None
            custom = self.repaired(custom, path)
            try:
                tree, self.map, self.root = parse_rooted(custom, shape, path)
            except BinsparseError as error:
                self.problems += error.problems
                return None
        if "format" not in inner:
            if tree is None:
                self.fault("format", "missing")
            else:
                self.repair("format", "missing next to custom")
            return tree
        if name == "custom":
            if tree is None:
                self.fault("custom", "missing, though the format is custom")
            return tree
        format = named(name) if isinstance(name, str) else None
        if format is None and isinstance(name, str) and (format := named(name.upper())) is not None:
            self.repair("format", f"{name} is not in upper case")
        if format is None:
            known = ", ".join([*ALIASES, *SYNONYMS, "custom"])
            self.fault("format", f"unknown format {name!r:.60}; known are {known}")
        elif self.root is not None:
            self.fault("format", f"expected custom, as the first level requires, got {name}")
        elif tree is not None and (tree.rank != format.rank or tree.canonical() != format.canonical()):
            self.fault(path, f"describes {tree!s:.80}, but the format is {name}")
        return format

    def count(self, inner: dict[str, Any], format: Format | None, shape: tuple[int, ...] | None) -> int | None:
        path = "number_of_stored_values"
        if path not in inner:
            self.repair(path, "missing")
            return None
        count = self.integer(inner[path], path)
        if count is None or shape is None:
            return count
        cells = math.prod(shape)
        if count > cells and not (format is not None and any(level.gaps for level in format.levels)):
            self.fault(path, f"{count} is more than the {cells} cells of shape {shape}")
        elif format is not None and not array_classes(format) and count != cells and self.root != PARTS:
            self.fault(path, f"expected {cells}, all cells of a dense format, got {count}")
        return count

    def data_types(self, inner: dict[str, Any], format: Format | None) -> dict[str, DataType]:
        fill = inner.get("fill", False)
        if not isinstance(fill, bool):
            self.fault("fill", f"expected true or false, got {fill!r:.60}")
        texts = inner.get("data_types")
        if not isinstance(texts, dict):
            self.fault("data_types", "missing" if texts is None else f"expected an object, got {texts!r:.60}")
            return {}
        if format is None:
            return {}
        parsed = {}
        classes = array_classes(format)
        coded = [CODES] if str(texts.get("values")).startswith("dictionary[") else []
        for name in [*classes, "values", *coded, *(["fill_value"] if fill is True else [])]:
            path = f"data_types.{name}"
            if name == "fill_value" and name not in texts and "values" in texts:
                self.repair(path, "missing, taken from the values")
                texts = {**texts, name: texts["values"]}
            if name not in texts:
                self.fault(path, "missing")
                continue
            try:
                data_type = parse_dtype(texts[name], path)
            except BinsparseError as error:
                self.problems += error.problems
                continue
            is_bool = classes.get(name) == "bool"
            if name in classes and not (str(data_type) == "bint8" if is_bool else data_type.integer):
                self.fault(path, f"expected {'bint8' if is_bool else 'an integer type'}, got {data_type}")
            elif name == "fill_value" and (data_type.iso or data_type.wrapper or data_type.dictionary):
                self.fault(path, f"expected the type of one value, got {data_type}")
            elif name == CODES and (data_type.dtype.name not in CODE_TYPES or not data_type.integer):
                self.fault(path, f"expected {' or '.join(CODE_TYPES)}, perhaps bit-packed, got {data_type}")
            elif data_type.dictionary and self.root != PACKED:
                self.fault("custom", f"expected {PACKED} as the first level, as {data_type} requires")
            parsed[name] = data_type
        return parsed

    def structure(self, inner: dict[str, Any], shape: tuple[int, ...] | None, dtype: Any) -> str | None:
        structure = inner.get("structure")
        if "structure" not in inner or shape is None:
            return None
        if structure == "general" and self.lenient:
            self.repair("structure", "general is not a structure")
            return None
        problems = list(structure_problems(structure, shape, dtype))
        self.problems += problems
        return None if problems else structure
