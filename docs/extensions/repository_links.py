"""Links between files of the repository work on the site as they do beside the files.

The root's documents and the notebooks are pages of the site through symbolic links in `docs/`.
"""

import os
import re
from pathlib import Path

SITE = Path(__file__).parent.parent
PAGES = {path.resolve(): path for path in SITE.rglob("*") if path.is_symlink()}


def on_site(target):
    """Where the site has a file of the repository, without its suffix; None where no symbolic link leads."""
    for real, page in PAGES.items():
        if target == real or real in target.parents:
            return (page / target.relative_to(real)).with_suffix("")
    return None


def rewrite(app, docname, source):
    page = Path(app.env.doc2path(docname))

    def link(found):
        target = (page.resolve().parent / found[1]).resolve()
        if SITE in page.resolve().parents and SITE in target.parents:
            return found[0]
        if SITE in target.parents and target.suffix == ".md":
            return f"]({os.path.relpath(target, page.parent)}{found[2] or ''})"
        there = on_site(target)  # Sphinx would follow the symbolic link out of its folder if there were a suffix
        return f"]({os.path.relpath(there, page.parent)})" if there else found[0]

    source[0] = re.sub(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)", link, source[0])


def setup(app):
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
