"""Sum a long polars table into a tensor, and read its rows with polars."""

import polars as pl

import binsparse_levels as bl

frame = pl.DataFrame({"day": ["mo", "tu", "mo"], "item": ["pen", "ink", "pen"], "n": [1.5, 2.5, 3.5]})
tensor = bl.from_table(frame, ["day", "item"], "n", "CSR", duplicates="sum")
assert tensor.labels("item").tolist() == ["ink", "pen"]
assert pl.from_arrow(bl.to_table(tensor))["n"].to_list() == [5.0, 2.5]
