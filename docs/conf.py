"""The site. `sphinx-build -n -W docs OUT` builds it, with `-b doctest` it runs the examples of the API."""

import doctest
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

import binsparse_levels  # noqa: E402

project = "binsparse_levels"
author = copyright = "The binsparse_levels developers"
release = version = binsparse_levels.__version__

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon", "myst_nb", "sphinx_copybutton", "sphinx_design",
    "api_docstrings", "command_pages", "level_pictures", "repository_links",
    "task_scripts",
]  # fmt: skip
exclude_patterns = ["_build", "extensions", "**/.ipynb_checkpoints"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks contain their outputs, and a test runs them
nb_merge_streams = True

napoleon_google_docstring = False
napoleon_use_rtype = False

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name.rpartition(".")[2]
    for name in (
        "npt.ArrayLike",
        "npt.DTypeLike",
        "Check",
        "Duplicates",
        "FormatLike",
        "MapLike",
        "Progress",
        "StoreLike",
    )
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
nitpick_ignore_regex = [("py:(data|exc|obj)", r"(?!binsparse_levels).*")]  # of Python and numpy

doctest_default_flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS  # as in tests/test_package.py
doctest_global_setup = """
import os, tempfile
import numpy as np
import binsparse_levels as bl
from binsparse_levels import *
_folder = tempfile.TemporaryDirectory()
os.chdir(_folder.name)
"""
doctest_global_cleanup = f"""
os.chdir({os.getcwd()!r})
_folder.cleanup()
"""

html_theme = "pydata_sphinx_theme"
html_title = "binsparse_levels"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
