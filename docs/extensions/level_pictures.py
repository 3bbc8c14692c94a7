"""The directives `level-pictures`, a gallery of the level kinds, and `tensor-picture`, one small tensor.

The package itself draws the pictures.
"""

from sphinx.util.docutils import SphinxDirective

from binsparse_levels import pack
from binsparse_levels.levels import LEVELS

# A matrix of shape 4 × 6 that every kind can represent; equal neighbours make runs.
COORDS, VALUES, SHAPE = [[0, 0, 2, 2, 3, 3], [1, 2, 0, 3, 4, 5]], [5, 5, 7, 2, 1, 1], (4, 6)


def picture(format):
    """The matrix in a format, as Markdown."""
    drawn = pack(COORDS, VALUES, SHAPE, format).draw()
    return f'```{{raw}} html\n<div class="level-picture">{drawn}</div>\n```\n'


def gallery():
    """A section for each kind of the package, as Markdown, first those of the specification."""
    for kind, level in sorted(LEVELS.items(), key=lambda item: (not item[1].specified, item[0])):
        if level.__module__.startswith("binsparse_levels."):
            format = f"dense, {level()}"
            yield f"### {kind}\n\n`{format}`, see {{py:obj}}`binsparse_levels.{level.__name__}`.\n\n{picture(format)}"


class LevelPictures(SphinxDirective):
    def run(self):
        return self.parse_text_to_nodes("\n".join(gallery()), allow_section_headings=True)


class TensorPicture(SphinxDirective):
    """The argument is a format."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        return self.parse_text_to_nodes(picture(self.arguments[0]))


def setup(app):
    app.add_directive("level-pictures", LevelPictures)
    app.add_directive("tensor-picture", TensorPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
