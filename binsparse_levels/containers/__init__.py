"""Containers hold one JSON header and named one-dimensional arrays. They know no level and no data type."""
