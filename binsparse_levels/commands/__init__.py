"""Commands beside those in cli.py, and what all of them share."""
