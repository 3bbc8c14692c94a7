"""Read rows of a matrix in a PETSc file."""

import numpy as np

import binsparse_levels as bl

with open("matrix.petsc", "wb") as file:  # as MatView writes it
    file.write(
        np.array([1211216, 2, 3, 3, 2, 1, 0, 2, 1], ">i4").tobytes() + np.array([1.5, 2.5, 3.5], ">f8").tobytes()
    )

assert bl.open("matrix.petsc")[1:].to_dense().tolist() == [[0, 3.5, 0]]
