"""Builds in an object store: with faults of the server, several at once, and read by other programs."""

import random

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from helpers.blocks import alike
from zarr.storage import ObjectStore

import binsparse_levels as bl
from binsparse_levels.thresholds import THRESHOLDS

SHAPE, NAMES = (50, 60), ["i", "j", "v"]
STORAGE = {"chunks": 16, "shards": 64}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "step_entries", 300)
    monkeypatch.setattr(THRESHOLDS, "step_bytes", 4096)


def table(seed=0, count=900):
    rng = np.random.default_rng(seed)
    return pyarrow.table({"i": rng.integers(0, 50, count), "j": rng.integers(0, 60, count), "v": rng.random(count)})


def whole(seed=0):
    *coords, values = (x.to_numpy() for x in table(seed).columns)
    return bl.pack(coords, values, SHAPE, "CSR", duplicates="last")


def built(folder, url, seed=0, **options):
    if not (folder / f"{seed}.parquet").exists():
        pyarrow.parquet.write_table(table(seed), folder / f"{seed}.parquet", row_group_size=100)
    options = {"columns": NAMES, "duplicates": "last", "work": f"{url}/work-{seed}", **STORAGE, **options}
    bl.build(folder / f"{seed}.parquet", f"{url}/a.zarr", SHAPE, "CSR", **options)


def test_a_build_from_a_bucket_to_a_bucket(tmp_path, s3):
    import obstore

    store = obstore.store.from_url(s3)
    pyarrow.parquet.write_table(table(), tmp_path / "t.parquet", row_group_size=100)
    obstore.put(store, "in/t.parquet", (tmp_path / "t.parquet").read_bytes())
    options = {"columns": NAMES, "duplicates": "last", "work": f"{s3}/work", **STORAGE}
    for source in (f"{s3}/in", f"{s3}/in/t.parquet"):
        bl.build(source, f"{s3}/a.zarr", SHAPE, "CSR", overwrite=True, **options)
        alike(bl.read(f"{s3}/a.zarr"), whole())
        options["work"] += "-2"
    text = table().set_column(0, "i", pyarrow.array([f"user {k:03}" for k in table()["i"].to_pylist()]))
    pyarrow.parquet.write_table(text, tmp_path / "u.parquet")
    obstore.put(store, "text/u.parquet", (tmp_path / "u.parquet").read_bytes())
    options["work"] += "-3"
    bl.build(f"{s3}/text", f"{s3}/b.zarr", None, "CSR", **options)
    assert bl.read(f"{s3}/b.zarr").labels("i")[0] == "user 000"
    with bl.open(f"{s3}/a.zarr") as opened:
        alike(opened[7].load(), whole()[7])


@pytest.mark.slow
def test_the_later_of_two_builds_wins_whole(tmp_path, s3):
    built(tmp_path, s3)
    alike(bl.read(f"{s3}/a.zarr"), whole())
    with pytest.raises(FileExistsError):
        built(tmp_path, s3, 1)

    def meanwhile(stage, done, total):
        if stage == "write" and done == total:
            built(tmp_path, s3, 3, overwrite=True)
            alike(bl.read(f"{s3}/a.zarr"), whole(3))

    built(tmp_path, s3, 2, overwrite=True, progress=meanwhile)
    alike(bl.read(f"{s3}/a.zarr"), whole(2))

    def fails(stage, done, total):
        if stage == "commit":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        built(tmp_path, s3, 4, overwrite=True, progress=fails)
    alike(bl.read(f"{s3}/a.zarr"), whole(2))
    built(tmp_path, s3, 4, overwrite=True)
    alike(bl.read(f"{s3}/a.zarr"), whole(4))


@pytest.mark.slow
def test_other_programs_find_the_tensor_below_its_prefix(tmp_path, s3):
    import obstore

    built(tmp_path, s3)
    group = zarr.open_group(ObjectStore(obstore.store.from_url(f"{s3}/a.zarr"), read_only=True), mode="r")
    prefix = group.attrs["binsparse_levels:at"]
    np.testing.assert_array_equal(group[prefix]["values"][...], whole().values)
    alike(bl.read(f"{s3}/a.zarr:{prefix}"), whole())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_faults_of_a_server_change_nothing(tmp_path, counted_s3):
    proxy, url = counted_s3
    chance = random.Random(0)
    proxy.fault = lambda: chance.choice(["reset", "lost", "cut", 403]) if chance.random() < 0.08 else None
    built(tmp_path, url)
    proxy.fault = lambda: None
    alike(bl.read(f"{url}/a.zarr"), whole())
