"""Files of the repository that are pages of the site too, and the links between them.

They are copied into `docs/` before each build, and git ignores the copies. A link that works next to a file also
works on the site.
"""

import os
import re
import shutil
from pathlib import Path

SITE = Path(__file__).parent.parent
ROOT = SITE.parent
COPIES = {
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "bench/README.md": "explanation/board.md",
    "bench/results/README.md": "explanation/results.md",
    "notebooks": "notebooks",
}


def copy(app, config):
    for real, page in COPIES.items():
        if (ROOT / real).is_dir():
            shutil.rmtree(SITE / page, ignore_errors=True)  # a removed file must not stay
            shutil.copytree(ROOT / real, SITE / page)
        elif (ROOT / real).exists():
            shutil.copy2(ROOT / real, SITE / page)


def moved(path, pairs):
    """A path in one of the files or folders `old`, as it is in `new`. None outside of all pairs (old, new)."""
    for old, new in pairs:
        if path.is_relative_to(old):
            return new / path.relative_to(old) if path != old else new
    return None


def rewrite(app, docname, source):
    page = Path(app.env.doc2path(docname))
    pairs = [(ROOT / real, SITE / copied) for real, copied in COPIES.items()]
    origin = moved(page, [(new, old) for old, new in pairs]) or page

    def link(found):
        bang, text, path, anchor = found.groups(default="")
        target = (origin.parent / path).resolve()
        if not target.exists():
            return found[0]
        if bang:
            return f"![{text}]({os.path.relpath(target, page.parent)})"
        there = moved(target, pairs) or target
        if SITE not in there.parents or not there.suffix:
            return text  # a file that is no page of the site
        return f"[{text}]({os.path.relpath(there, page.parent)}{anchor})"

    source[0] = re.sub(r"(!)?\[([^\[\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)", link, source[0])


def setup(app):
    app.connect("config-inited", copy)
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
