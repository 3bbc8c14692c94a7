"""Convert a long pandas table with labels to a stored tensor of rank 3, and back."""

import pandas as pd

import binsparse_levels as bl

rows = [(7, "DE", "pen", 1), (9, "FR", "pen", 2), (7, "DE", "ink", 3), (7, "FR", "pen", 4)]
frame = pd.DataFrame(rows, columns=["user", "country", "item", "n"])
bl.write("a.h5", bl.from_table(frame, ["user", "country", "item"], "n", "CSF"))
back = bl.to_table(bl.read("a.h5")).to_pandas()
assert back.groupby("item", observed=True)["n"].sum().to_dict() == {"pen": 7, "ink": 3}
