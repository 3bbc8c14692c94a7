"""The logger `binsparse_levels`. At level DEBUG, a line says how something is read, and why: "subject: what, why"."""

import logging
import re

DEBUG = logging.DEBUG
LOG = logging.getLogger("binsparse_levels")


def without_secrets(path: str) -> str:
    """A path for the log: a URL without its user, password and query."""
    return re.sub(r"(?<=://)[^/@]*@|\?.*", "", path) if "://" in path else path
