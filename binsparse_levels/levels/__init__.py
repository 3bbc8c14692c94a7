"""Level kinds, one file each. A further kind is a file and a line here."""

from .band import Band
from .base import LEVELS, Level, Place, places, register
from .bitmap import Bitmap
from .bits import Bits
from .dense import Dense
from .hashed import Hashed
from .n_of_m import NOfM
from .run import Run
from .sparse import Sparse

__all__ = [
    "LEVELS", "Band", "Bitmap", "Bits", "Dense", "Hashed", "Level", "NOfM", "Place", "Run", "Sparse", "places",
    "register",
]  # fmt: skip
