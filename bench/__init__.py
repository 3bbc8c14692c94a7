"""The board: the operations that a user waits for, beside what a user would pick instead."""
