"""Convert a query of DuckDB to a tensor, and query the tensor with DuckDB."""

import duckdb

import binsparse_levels as bl

query = duckdb.sql("select range % 10 as bin, 'name ' || range % 7 as name, range as n from range(1000)")
bl.write("a.zarr", bl.from_table(query, ["bin", "name"], "n", "CSR", duplicates="sum"))
rows = bl.to_table(bl.read("a.zarr"))
assert duckdb.sql("select sum(n) from rows").fetchall() == [(999 * 500,)]
