"""python -m binsparse_levels.compliance export FOLDER"""

import sys

from . import export

if sys.argv[1:2] != ["export"]:
    sys.exit("usage: python -m binsparse_levels.compliance export FOLDER")
del sys.argv[1]
sys.exit(export())
