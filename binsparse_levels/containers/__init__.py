"""Containers store one JSON header and named one-dimensional arrays, independent of levels and data types."""
