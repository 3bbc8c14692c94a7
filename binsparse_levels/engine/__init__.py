"""Entries ⇄ trees: sorting, packing, selecting, joining. Independent of files and of the meaning of a fill value."""
