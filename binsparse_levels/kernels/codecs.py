"""Numbers of the codecs of `bitpacking`, importable without numba."""

PLAIN, LESS_ONE, DELTA, ZIGZAG = 1, 2, 3, 4
STEPPING = (DELTA, ZIGZAG)  # the value before each chunk is stored separately
CHUNK = 128  # values
