"""Arrays in chunks: stores of objects, the layout of chunks in them, a reader and a writer."""
