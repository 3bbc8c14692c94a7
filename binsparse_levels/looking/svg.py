"""The parts of SVG pictures. All text is escaped, because it may come from a file."""

from __future__ import annotations

from collections.abc import Sequence

from .tables import escaped

# In a page, a picture has the colours of the page, which JupyterLab and VS Code name; in a file, those of the system.
_STYLE = """
.bsp { color: var(--jp-content-font-color1, var(--vscode-editor-foreground, currentColor)) }
.bsp:root { color: #24292f; color-scheme: light dark }
@media (prefers-color-scheme: dark) { .bsp:root { color: #e6edf3 } }
.bsp text { font: 12px sans-serif; fill: currentColor; stroke: none } .bsp .mono { font-family: monospace }
.bsp .small { font-size: 10px } .bsp .mid { text-anchor: middle } .bsp .end { text-anchor: end }
.bsp rect, .bsp line { stroke: currentColor; stroke-opacity: 0.55; fill: none } .bsp .soft { stroke-dasharray: 3 2 }
.bsp .ink { stroke: none; fill: #3b82f6 }
"""


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escaped(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str = "") -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg(width: float, height: float, body: Sequence[str], style: str = "") -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    classes = f"bsp {style}".strip()
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="{classes}" {size}>'
    return "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>\n"])
