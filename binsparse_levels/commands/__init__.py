"""The commands and their common code."""
