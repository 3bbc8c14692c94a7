"""Entries ⇄ trees: sorting, packing, selecting, joining. Knows levels and arrays; no file, no fill value's meaning."""
