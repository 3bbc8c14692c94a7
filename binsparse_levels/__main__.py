"""python -m binsparse_levels"""

import sys

from .cli import main

sys.exit(main())
