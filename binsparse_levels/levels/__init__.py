"""Level kinds, one file each. A further kind is a file and a line here."""

from .base import LEVELS, Level, Place, places, register
from .dense import Dense
from .sparse import Sparse

__all__ = ["LEVELS", "Dense", "Level", "Place", "Sparse", "places", "register"]
