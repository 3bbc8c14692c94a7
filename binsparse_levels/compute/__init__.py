"""Walking trees: reductions, products, functions of two tensors, and kernels of one's own, over any chain of levels."""

from .arithmetic import calculate as calculate
from .products import einsum as einsum
from .products import product as product
from .reductions import Statistics as Statistics
from .reductions import reduce as reduce
from .reductions import statistics as statistics
from .walk import foreach as foreach
