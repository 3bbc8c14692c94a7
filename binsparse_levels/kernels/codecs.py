"""The codecs of bitpacking.py by number, for those who have no need of numba yet."""

PLAIN, LESS_ONE, DELTA, ZIGZAG = 1, 2, 3, 4
STEPPING = (DELTA, ZIGZAG)  # their chunks begin at a value that is stored apart
CHUNK = 128  # values
