"""The board: operations of the engine beside what a user would pick instead."""
