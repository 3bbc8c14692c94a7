"""The contents of a header: format, data types, structure, descriptor, index map."""
