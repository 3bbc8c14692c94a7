"""Headless Chromium, driven through ChromeDriver by HTTP, with the standard library only."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request

import pytest

# Root has no sandbox. Without the other options, Chromium connects to its own hosts at every start.
_OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]  # fmt: skip
_PROGRAMS = ("chromium", "chromedriver")

# Every visible text with its contrast: the colour of the text and of its background, with transparency applied.
_TEXTS = """
const pixel = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function rgba(text) {
  pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = '#000'; pixel.fillStyle = text; pixel.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
}
const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);
function background(element) {
  const found = []; let base = rgba(getComputedStyle(document.documentElement).colorScheme.includes('dark')
    && matchMedia('(prefers-color-scheme: dark)').matches ? '#121212' : '#ffffff');
  for (let at = element; at; at = at.parentElement) found.unshift(rgba(getComputedStyle(at).backgroundColor));
  for (const colour of found) base = over(colour, base);
  return base;
}
const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT), texts = [];
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, style = getComputedStyle(element);
  if (!walker.currentNode.data.trim() || ['STYLE', 'TITLE', 'style', 'SCRIPT'].includes(element.tagName)) continue;
  if (!element.getClientRects().length) continue;
  const below = background(element), svg = element.namespaceURI.endsWith('svg');
  const top = over(rgba(svg ? style.fill : style.color), below);
  const [a, b] = [light(top), light(below)].sort((x, y) => y - x);
  texts.push([walker.currentNode.data.trim().slice(0, 60), (a + 0.05) / (b + 0.05)]);
}
return texts;
"""


class Browser:
    """One window."""

    def __init__(self, address):
        self._address = address
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": [*_OPTIONS, f"--user-data-dir={tempfile.mkdtemp()}"]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._post("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{made['sessionId']}"

    def _post(self, path, body=None, method="POST"):
        data = None if method == "DELETE" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _execute(self, command, **parameters):
        return self._post(f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def close(self):
        self._post(self._session, method="DELETE")

    def run(self, script):
        return self._post(f"{self._session}/execute/sync", {"script": script, "args": []})

    def open(self, url, *, dark=False, width=1400, height=900):
        """Open a page with a dark or light colour scheme, in a window of the given size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._execute("Emulation.setEmulatedMedia", features=[scheme])
        self._execute(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self._log("browser")
        self._log("performance")
        self._post(f"{self._session}/url", {"url": url})

    def _log(self, kind):
        return self._post(f"{self._session}/se/log", {"type": kind})

    def complaints(self):
        """The messages of the console since the page was opened."""
        return [line["message"] for line in self._log("browser")]

    def requested(self):
        """The URLs that the page has requested."""
        events = [json.loads(line["message"])["message"] for line in self._log("performance")]
        return [x["params"]["request"]["url"] for x in events if x["method"] == "Network.requestWillBeSent"]

    def texts(self):
        """The visible texts, each with its contrast to the background."""
        return self.run(_TEXTS)

    def picture(self):
        """The whole page as a PNG in base64."""
        return self._execute("Page.captureScreenshot", captureBeyondViewport=True)["data"]


def _missing():
    return [name for name in _PROGRAMS if shutil.which(name) is None]


def _install():
    """Install missing programs on CI, if this process is root."""
    if _missing() and os.environ.get("CI") and shutil.which("apt-get") and os.geteuid() == 0:
        waiting = ["-q", "-y", "-o", "DPkg::Lock::Timeout=200"]
        for words in (["update"], ["install", "chromium", "chromium-driver"]):
            subprocess.run(["apt-get", *waiting, *words], capture_output=True, timeout=280, check=False)


@contextlib.contextmanager
def browser():
    """A browser. Skip the test if there is none."""
    _install()
    if _missing():
        pytest.skip(f"no {' and no '.join(_missing())} here; apt-get install chromium chromium-driver")
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        made = Browser(f"http://127.0.0.1:{port}")
        try:
            yield made
        finally:
            made.close()
    finally:
        driver.terminate()
        driver.wait(timeout=20)
        driver.stdout.close()
