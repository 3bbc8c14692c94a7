"""Level kinds of the literature. `import binsparse_levels.gallery` registers them.

They are examples of plug-ins, in a file each: shorter than the kinds of `levels/`, and without their ways to read parts
of files. Files that contain them name the package `binsparse_levels.gallery`; a release may change their layout.
"""

from .alto import Alto as Alto
from .buckets import Buckets as Buckets
from .byte_code import ByteCode as ByteCode
from .csr_du import CsrDu as CsrDu
from .dia import Dia as Dia
from .loose_compressed import LooseCompressed as LooseCompressed
from .pcsr import Pcsr as Pcsr
from .roaring import Roaring as Roaring
from .sell import Sell as Sell
from .vbl import Vbl as Vbl
