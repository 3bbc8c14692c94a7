"""Tensors of other libraries, a module a library."""
