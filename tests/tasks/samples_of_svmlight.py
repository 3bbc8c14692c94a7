"""Read LIBSVM samples with their targets, and select a class."""

import binsparse_levels as bl

with open("samples.libsvm", "w") as file:
    file.write("1 1:0.5 3:2\n-1 2:1\n1 3:4\n")

samples = bl.read("samples.libsvm")
assert samples.labels("sample").tolist() == [1, -1, 1]
assert samples.sel(sample=1).to_dense().tolist() == [[0.5, 0, 2], [0, 0, 4]]
