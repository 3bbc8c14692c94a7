"""Conversions from and to other libraries, one module for each library."""
