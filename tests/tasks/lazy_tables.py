"""Convert three columns of a polars LazyFrame and of a folder of Parquet files to tensors."""

import polars
import pyarrow
import pyarrow.dataset

import binsparse_levels as bl

table = pyarrow.table({"user": ["ann", "bob"], "day": [3, 1], "note": ["", ""], "count": [1, 2]})
lazy = polars.from_arrow(table).lazy().filter(polars.col("count") > 1)
assert bl.from_table(lazy, ["user", "day"], "count").sel(user="bob", day=1) == 2

pyarrow.dataset.write_dataset(table, "rows", format="parquet")
rows = bl.from_table(pyarrow.dataset.dataset("rows"), ["user", "day"], "count", "CSF")
assert rows.sel(user="ann", day=3) == 1
