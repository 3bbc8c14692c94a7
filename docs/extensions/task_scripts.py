"""The directive `task-scripts`: the scripts in `tests/tasks`, each after its first sentence."""

import ast
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[2] / "tests" / "tasks"


class TaskScripts(SphinxDirective):
    def run(self):
        parts = []
        for path in sorted(FOLDER.glob("*.py")):
            if not path.stem.startswith("test_"):
                self.env.note_dependency(str(path))
                text = path.read_text()
                title = ast.get_docstring(ast.parse(text)).partition("\n")[0]
                code = text.partition('"""\n')[2].strip()
                parts.append(f"::::{{dropdown}} {title}\n```python\n# {path.name}\n{code}\n```\n::::\n")
        return self.parse_text_to_nodes("\n".join(parts))


def setup(app):
    app.add_directive("task-scripts", TaskScripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
