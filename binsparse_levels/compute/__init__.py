"""Computation on trees of any levels: reductions, products, operators of numpy, and custom kernels."""

from .arithmetic import calculate as calculate
from .products import einsum as einsum
from .products import product as product
from .reducing import Statistics as Statistics
from .reducing import reduce as reduce
from .reducing import statistics as statistics
from .walk import foreach as foreach
