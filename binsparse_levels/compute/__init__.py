"""Computation on trees of any levels: reductions, products, operators of numpy, and custom kernels."""

from .arithmetic import calculate as calculate
from .products import einsum as einsum
from .products import product as product
from .reductions import Statistics as Statistics
from .reductions import reduce as reduce
from .reductions import statistics as statistics
from .walk import foreach as foreach
