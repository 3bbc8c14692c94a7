"""Each command agrees with the public function of the same name: on every file of the tests, sound or damaged."""

import contextlib
import filecmp
import io
import itertools
import json
import os
import warnings
from pathlib import Path

import pytest

import binsparse_levels as bl
from binsparse_levels.cli import main
from binsparse_levels.commands.terminal import error_name
from binsparse_levels.io import describe
from binsparse_levels.looking.report import report_on

DATA = Path(__file__).parent / "data"
SUFFIXES = {".h5", ".npz", ".nc", ".zarr", ".zip", ".bspnpy", ".bspra", ".ra", ".gz", ".mtx", ".tns", ".sscdf"}
FILES = sorted(
    str(path)
    for path in DATA.rglob("*")
    if (path.suffix in SUFFIXES or path.parent.name == "matrices") and not SUFFIXES & {x.suffix for x in path.parents}
)


def run(*words):
    """The exit status, and what is printed: as JSON where that is asked for."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, words)))
    return status, json.loads(out.getvalue()) if "--json" in words else out.getvalue()


def tried(function, *args, **options):
    """What a function returns, or the name of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options)
        except (bl.BinsparseError, OSError) as error:
            return error_name(error)


def held(tensor):
    """What a tensor is: its facts, and its arrays; of one value for all, that value."""
    stored = tensor.stored
    facts = tensor.shape, tensor.dims, str(tensor.map), stored.format.canonical(), stored.structure, stored.iso
    values = stored.values[: 1 if stored.iso else None]
    arrays = {name: x.tolist() for name, x in {**stored.arrays, "values": values}.items()}
    return (*facts, str(tensor.fill_value), repr(arrays))


def identical(folder):
    """Whether both files have the same bytes: most do, and need not be read to be compared."""
    return filecmp.cmp(folder / "a.h5", folder / "b.h5", shallow=False)


def groups_of(path):
    found = tried(bl.list_tensors, path)
    return [path] if isinstance(found, str) else [path if x == "/" else f"{path}:{x}" for x in found]


PLACES = [place for path in FILES for place in groups_of(path)]


@pytest.mark.slow
def test_info():
    for place in PLACES:
        status, told = run("info", place, "--json")
        facts = tried(describe, place)
        if isinstance(facts, str):
            assert (status, told["error"]) == (1, facts), place
            continue
        descriptor = facts.descriptor
        shape = descriptor.shape if descriptor.map is None else descriptor.map.shape
        assert (status, tuple(told["shape"]), told["format"]) == (0, shape, str(descriptor.format)), place
        assert told["bytes"] == sum(x.nbytes for x in facts.arrays.values())
        opened = tried(bl.open, place)
        if not isinstance(opened, str):
            assert (opened.shape, str(opened.stored.format)) == (shape, told["format"]), place


def parents(place):
    """A place, its file, and the groups between."""
    path, colon, group = place[len(str(DATA)) :].partition(":")
    parts = group.split("/")
    return [str(DATA) + path] + [
        f"{DATA}{path}{colon}{'/'.join(parts[: k + 1])}" for k in range(len(parts) * bool(colon))
    ]


@pytest.mark.slow
def test_list():
    for place in sorted({x for path in FILES for x in parents(min(groups_of(path), default=path))}):
        groups = tried(bl.list_tensors, place)
        status, told = run("list", place, "--json")
        if isinstance(groups, str):
            assert (status, told["error"]) == (1, groups), place
            continue
        assert [line["group"] for line in told["tensors"]] == groups, place
        file = parents(place)[0]
        for group, line in zip(groups, told["tensors"], strict=True):
            facts = tried(describe, file if group == "/" else f"{file}:{group}")
            assert line.get("error") == (facts if isinstance(facts, str) else None), place
        assert status == any("error" in line for line in told["tensors"])


@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
def test_check(lenient):
    for place in PLACES:
        found = tried(bl.read, place, lenient=lenient)
        status, told = run("check", place, "--json", *["--lenient"] * lenient)
        assert told.get("error") == (found if isinstance(found, str) else None), place
        assert told["ok"] == (status == 0) == (not isinstance(found, str)), place


def formats_for(tensor):
    """None, and formats of the rank whose order is another."""
    rank = tensor.stored.ndim
    yield None
    if rank and tensor.structure is None:
        yield f"CSF @ {', '.join(map(str, range(rank)[::-1]))}"


@pytest.mark.slow
def test_convert(tmp_path):
    """The command, the function, and `write` of what `read` returns."""
    for place in PLACES:
        found = tried(bl.read, place)
        for format in [None] if isinstance(found, str) else formats_for(found):
            words = [] if format is None else ["--format", format]
            right = tried(bl.convert, place, tmp_path / "a.h5", format, overwrite=True)
            status, told = run("convert", place, tmp_path / "b.h5", "--overwrite", "--json", *words)
            assert (status > 0, told.get("error")) == (isinstance(right, str), right), (place, format)
            if right is None:
                converted = found if format is None else found.convert(format)
                made = bl.read(tmp_path / "a.h5")
                assert identical(tmp_path) or held(made) == held(bl.read(tmp_path / "b.h5")), place
                fewer = made.number_of_stored_values < converted.number_of_stored_values  # zeros of dense arrays
                assert fewer or held(made) == held(converted), place


@pytest.mark.slow
def test_repair(tmp_path):
    for place in PLACES:
        right = tried(bl.repair, place, tmp_path / "a.h5", overwrite=True)
        status, told = run("repair", place, tmp_path / "b.h5", "--overwrite", "--json")
        if isinstance(right, str):
            assert (told["error"], status > 0) == (right, True), place
            continue
        assert (status, told["repairs"]) == (0, right), place
        assert identical(tmp_path) or held(bl.read(tmp_path / "a.h5")) == held(bl.read(tmp_path / "b.h5")), place


@pytest.mark.slow
def test_what_explains(tmp_path):
    for place in PLACES:
        tensor = tried(bl.read, place)
        calls = ["advise", place, "--kinds", "dense,sparse"], ["draw", place, tmp_path / "a.svg", "--overwrite"]
        if isinstance(tensor, str):
            for words in calls:
                status, told = run(*words, "--json")
                assert (status, told["error"]) == (1, tensor), place
            continue
        if tensor.number_of_stored_values > 10_000:
            continue
        right = tried(bl.advise, tensor, kinds=("dense", "sparse"))
        status, told = run(*calls[0], "--json")
        if isinstance(right, str):
            assert (told["error"], status > 0) == (right, True), place
        else:
            assert [(x["format"], x["bytes"]) for x in told["formats"]] == [
                (str(c), c.nbytes) for _, c, _ in right.rows()
            ]
        status, _ = run(*calls[1])
        assert (status, (tmp_path / "a.svg").read_text()) == (0, tensor.without_map().draw()), place


@pytest.mark.slow
def test_report(tmp_path):
    for place in PLACES:
        opened = tried(bl.open, place)
        right = opened if isinstance(opened, str) else tried(report_on, opened, os.path.basename(place))
        status, told = run("report", place, "-o", tmp_path / "a.html", "--overwrite", "--json")
        if isinstance(right, str):
            assert (told["error"], status > 0) == (right, True), place
            continue
        assert (status, told["faults"]) == (bool(right.faults), list(map(str, right.faults))), place
        assert (tmp_path / "a.html").read_text(encoding="utf-8") == right.html
        assert bl.open(place).report().faults == right.faults


NOTATIONS = [
    *("CSF", "csf @ 2, 0, 1", "COO", "COO @ 1,2,0", "sparse(3) @ 0, 2, 1", "dense, sparse, sparse @ 2, 1, 0"),
    *(f"CSF @ {', '.join(map(str, order))}" for order in itertools.permutations(range(3))),
    "sparse, sparse, sparse(2) through 0/2, 1, 0%2, 2", "CSF @ 3, 2, 1, 0 through 0/2, 1, 0%2, 2",
    "CSR", "CSF @ 2, 0", "CSF @ 0, 1, 1", "CSF @ 3, 2, 1, 0", "crs", "sparse(4)", "COO(3)",
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("notation", NOTATIONS)
def test_formats_are_those_of_the_functions(tmp_path, notation):
    tensor = bl.pack([[0, 1], [1, 2], [2, 3]], [1.0, 2.0], (3, 4, 5), "COO")
    bl.write(tmp_path / "t.h5", tensor)
    right = tried(tensor.convert, notation)
    status, told = run("convert", tmp_path / "t.h5", tmp_path / "o.h5", "--format", notation, "--json")
    if isinstance(right, str):
        assert (status, told["error"]) == (2, right)
    else:
        assert (status, bl.read(tmp_path / "o.h5").notation) == (0, right.notation)
    advice = tried(bl.advise, tensor, formats=notation)
    status, told = run("advise", tmp_path / "t.h5", "--format", notation, "--json")
    if isinstance(advice, str):
        assert (status, told["error"]) == (2, advice)
    else:
        named = [(x["format"], x["bytes"], x["refused"]) for x in told["formats"]]
        assert (status, named) == (0, [(str(c), c.nbytes, c.refused) for _, c, _ in advice.rows()])
