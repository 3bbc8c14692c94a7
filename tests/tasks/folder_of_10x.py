"""Convert a folder of Cell Ranger to an `.h5ad` file with names."""

import gzip
import os

import scipy.io
import scipy.sparse as sp

import binsparse_levels as bl

os.mkdir("filtered")
scipy.io.mmwrite("filtered/matrix.mtx", sp.coo_array([[0, 3], [1, 0], [2, 0]]))
with gzip.open("filtered/barcodes.tsv.gz", "wt") as file:
    file.write("AAAC-1\nAAAG-1\n")
with gzip.open("filtered/features.tsv.gz", "wt") as file:
    file.write("".join(f"ENSG{k}\tgene {k}\tGene Expression\n" for k in range(3)))

counts = bl.read("filtered")
bl.write("cells.h5ad:X", counts.permute(["barcode", "feature"]), kind="anndata")
assert bl.open("cells.h5ad").sel(obs="AAAG-1", var="ENSG0") == 3
