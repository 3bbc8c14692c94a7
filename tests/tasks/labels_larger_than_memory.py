"""Write a stream of unordered tables with labels to one file."""

import polars as pl

import binsparse_levels as bl


def tables():
    for n in range(0, 10**5, 10_000):
        yield pl.DataFrame({"name": [f"name {k % 97}" for k in range(n, n + 10_000)], "bin": range(10_000), "n": 1})


bl.write_from(tables(), "a.h5", (1000, 10_000), "CSF", memory=2**31, dims=["name", "bin"], values="n", duplicates="sum")
with bl.open("a.h5") as tensor:
    assert tensor.labels("name")[:2].tolist() == ["name 0", "name 1"]
    assert bl.to_table(tensor)["n"].to_numpy().sum() == 10**5
