"""Files of other systems. Each module maps a file to a level tree and back."""
