"""Level kinds, one file each. To add a kind, add a file and import it here."""

from .band import Band as Band
from .base import LEVELS as LEVELS
from .base import ArraySpec as ArraySpec
from .base import Level as Level
from .base import Place as Place
from .bitmap import Bitmap as Bitmap
from .bits import Bits as Bits
from .dense import Dense as Dense
from .dense import canonical as canonical
from .dense import full as full
from .elias_fano import EliasFano as EliasFano
from .hashed import Hashed as Hashed
from .mask import Mask as Mask
from .n_of_m import NOfM as NOfM
from .places import places as places
from .registry import register as register
from .run import Run as Run
from .sparse import Sparse as Sparse
from .sparse import filled as filled
from .sparse import listing as listing

OURS = tuple(LEVELS.values())  # the kinds of this package; other packages register more
