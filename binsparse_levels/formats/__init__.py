"""What is said of a tensor before any of its numbers: its format, data types, structure, descriptor, index map."""
