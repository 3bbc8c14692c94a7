"""One way to bytes in pieces: a store of objects, where the chunks of an array lie in it, a reader and a writer."""
