"""Other systems' files, a module each, which maps the file to a level tree and back."""
