"""Level kinds, one file each. A further kind is a file and a line here."""

from .base import LEVELS, Level, Place, places, register
from .bitmap import Bitmap
from .dense import Dense
from .sparse import Sparse

__all__ = ["LEVELS", "Bitmap", "Dense", "Level", "Place", "Sparse", "places", "register"]
