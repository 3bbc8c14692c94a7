"""Hostile files and bad luck: a case for each of 92 numbers, a fuzzer, and writes that are cut short.

python -m tests.attacks prints the table of all numbered cases with their outcomes.
"""
