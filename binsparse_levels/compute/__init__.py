"""Walking trees: reductions, products with dense arrays, and kernels of one's own, over any chain of levels."""

from .products import einsum as einsum
from .products import product as product
from .products import product_from_left as product_from_left
from .reductions import Statistics as Statistics
from .reductions import reduce as reduce
from .reductions import statistics as statistics
from .timing import kernel_seconds as kernel_seconds
from .walk import foreach as foreach
