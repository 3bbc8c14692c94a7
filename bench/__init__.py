"""Benchmarks of the operations that users wait for, compared with other libraries."""
