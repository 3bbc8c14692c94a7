"""Pieces of the HTML of a report: its style, tables, bars, histograms and shaded cells. No tensor is known here.

There are no scripts, and nothing is loaded. Text may come from a file: `escaped` text alone goes into a piece.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from ..levels.positions import Array
from .drawing import escaped

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SHADES = 7
_INK = (59, 130, 246)  # seen on white and on black
_WIDTH, _HEIGHT = 256, 72  # of a histogram

# In a notebook, the colours are those of the page: JupyterLab and VS Code name them.
_STYLE = """
.bsp-report{--fg:var(--jp-content-font-color1,var(--vscode-editor-foreground,currentColor));
--soft:color-mix(in srgb,var(--fg) 76%,transparent);--line:color-mix(in srgb,var(--fg) 22%,transparent);
--card:color-mix(in srgb,var(--fg) 5%,transparent);--ink:#3b82f6;--two:#c98a1b;--grey:#8a929c;--leaf:#2f9e5b;
color:var(--fg);font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;container-type:inline-size;overflow-wrap:anywhere}
.bsp-report *{box-sizing:border-box}
.bsp-report h1{font-size:25px;line-height:1.25;margin:0 0 4px}
.bsp-report h2{font-size:18px;margin:34px 0 12px;padding-bottom:4px;border-bottom:1px solid var(--line)}
.bsp-report p{margin:8px 0}
.bsp-report small,.bsp-report figcaption span,.bsp-report footer{color:var(--soft)}
.bsp-report small,.bsp-report figcaption,.bsp-report footer{font-size:13px}
.bsp-report code,.bsp-report pre{font:13px/1.45 ui-monospace,'DejaVu Sans Mono',monospace;background:none;color:inherit}
.bsp-report pre{white-space:pre-wrap;margin:0;padding:10px 14px;background:var(--card);border-radius:8px}
.bsp-report .badge{display:inline-block;border-radius:12px;padding:1px 12px;font-size:13px;color:#fff;
background:#1a7f37;white-space:nowrap}
.bsp-report .badge.bad{background:#cf222e}
.bsp-report .note{background:var(--card);border-left:4px solid var(--two);padding:8px 14px;border-radius:4px}
.bsp-report .cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:10px;margin:18px 0}
.bsp-report .cards div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.bsp-report .cards b{display:block;font-size:17px;line-height:1.35}
.bsp-report .cards .wide{grid-column:span 2}
.bsp-report table{border-collapse:collapse;width:100%;font-size:14px;margin:0;color:inherit}
.bsp-report tr,.bsp-report tr:nth-child(even){background:none}
.bsp-report td,.bsp-report th{padding:5px 10px;border:0;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;color:inherit;white-space:normal}
.bsp-report th{color:var(--soft);font-weight:500}
.bsp-report .n{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal}
.bsp-report .v{text-align:right}
.bsp-report .short{max-width:560px}
.bsp-report tr.me td{background:var(--card);font-weight:600}
.bsp-report .chart{width:34%;white-space:nowrap}
.bsp-report .narrow{width:18%}
.bsp-report .bar{display:inline-block;height:11px;background:var(--ink)}
.bsp-report .bar.two{background:var(--two)}
.bsp-report .key{display:inline-block;width:10px;height:10px;border-radius:3px;margin:0 6px 0 2px;background:var(--ink)}
.bsp-report .key.two{background:var(--two)}.bsp-report .key.computed{background:var(--grey)}
.bsp-report .key.values{background:var(--leaf)}
.bsp-report figure{margin:0;min-width:0}
.bsp-report figcaption{margin-bottom:5px}
.bsp-report .grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:22px}
.bsp-report .tree div{margin:2px auto;min-width:8px;height:24px;border-radius:4px;background:var(--ink)}
.bsp-report .tree div.computed{background:var(--grey)}.bsp-report .tree div.values{background:var(--leaf)}
.bsp-report .tree p{margin:0;text-align:center;font-size:13px}
.bsp-report svg{display:block;width:100%;max-width:320px;height:auto}
.bsp-report svg path{fill:var(--ink)}.bsp-report svg line{stroke:var(--line)}
.bsp-report .axis{display:flex;justify-content:space-between;max-width:320px;font-size:12px;color:var(--soft)}
.bsp-report img{display:block;width:100%;max-width:260px;aspect-ratio:1;image-rendering:pixelated;
background:var(--card);border:1px solid var(--line)}
.bsp-report footer{margin-top:40px}
@container (max-width:620px){.bsp-report .cards .wide{grid-column:auto}.bsp-report td,.bsp-report th{padding:4px 5px}
.bsp-report .wide-only{display:none}.bsp-report table{font-size:13px}}
"""
_PAGE = """
:root{color-scheme:light dark}
body{margin:0 auto;max-width:1120px;padding:24px;background:#fff;color:#1f2328}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}
@media(max-width:620px){body{padding:12px}}
"""


def inline(body: str) -> str:
    """A piece of a page, with its own style."""
    return f'<div class="bsp-report"><style>{_STYLE}</style>{body}</div>'


def page(title: str, body: str) -> str:
    """A whole page, light or dark as the system is. It forbids to load or to run anything."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{_PAGE}</style></head>\n<body>{inline(body)}</body></html>\n"
    )


def section(title: str, body: str) -> str:
    return f"<h2>{escaped(title)}</h2>\n{body}\n" if body else ""


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """heads: cells of the head, made by `cell`, as rows are."""
    return f"<table><tr>{''.join(heads)}</tr>{''.join(rows)}</table>"


def cell(content: str, style: str = "", tag: str = "td") -> str:
    return f'<{tag} class="{style}">{content}</{tag}>' if style else f"<{tag}>{content}</{tag}>"


def bar(share: float, style: str = "") -> str:
    return f'<span class="bar {style}" style="width:{100 * min(max(share, 0), 1):.1f}%"></span>'


def grid(figures: Iterable[str]) -> str:
    body = "".join(figures)
    return f'<div class="grid">{body}</div>' if body else ""


def figure(title: str, said: str, picture: str) -> str:
    return f"<figure><figcaption>{title} <span>{said}</span></figcaption>{picture}</figure>"


def histogram(counts: Sequence[int], first: str, last: str, label: str) -> str:
    """Bars next to each other, and what stands below the first and the last. Above is the number of the tallest bar.

    Heights are in proportion, but a bar of few is still seen.
    """
    most, path = max(counts, default=0), ["M0 0"]
    for k, count in enumerate(counts):
        height = max(_HEIGHT * count / most, 1) if count else 0
        path.append(f"V{_HEIGHT - height:.0f}H{(k + 1) * _WIDTH / len(counts):.1f}".replace(".0", ""))
    path[0] = f"M0 {_HEIGHT}"
    return (
        f'<div class="axis"><span>{most:,}</span></div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 1}" role="img" aria-label="{escaped(label)}">'
        f'<path d="{"".join(path)}V{_HEIGHT}z"/><line x1="0" y1="{_HEIGHT}.5" x2="{_WIDTH}" y2="{_HEIGHT}.5"/></svg>'
        f'<div class="axis"><span>{escaped(first)}</span><span>{escaped(last)}</span></div>'
    )


def shaded(counts: Array, label: str) -> str:
    """A picture of cells, whose shade is the logarithm of the count. It takes at most six kilobytes."""
    logs = np.log(np.maximum(counts, 1))
    least, most = np.min(logs, initial=np.inf, where=counts > 0), logs.max(initial=0)
    share = (logs - least) / (most - least) if most > least else np.ones(counts.shape)
    shades = np.where(counts > 0, 1 + np.minimum(_SHADES - 1, _SHADES * share), 0)
    data = base64.b64encode(_png(shades.astype(np.uint8))).decode()
    return f'<img alt="{escaped(label)}" src="data:image/png;base64,{data}">'


def _png(shades: Array) -> bytes:
    """Cells of one colour, more opaque the higher their shade; 0 is transparent."""
    height, width = shades.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = np.hstack([np.zeros((height, 1), np.uint8), shades]).tobytes()  # each begins with its filter, none
    opacity = bytes([0, *(255 * (k + 1) // (_SHADES + 1) for k in range(1, _SHADES + 1))])
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", bytes(_INK) * (_SHADES + 1)),
            chunk(b"tRNS", opacity),
            chunk(b"IDAT", zlib.compress(lines, 9)),
            chunk(b"IEND", b""),
        ]
    )


def size_of(count: float) -> str:
    """A number of bytes for people.

    >>> size_of(950), size_of(123_456_789)
    ('950 B', '123 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"
