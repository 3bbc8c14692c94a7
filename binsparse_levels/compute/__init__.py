"""Walking trees: reductions, products with dense arrays, and kernels of one's own, over any chain of levels."""

from .products import einsum as einsum
from .products import product as product
from .products import product_from_left as product_from_left
from .reductions import Statistics as Statistics
from .reductions import reduce as reduce
from .reductions import statistics as statistics
from .walk import foreach as foreach
