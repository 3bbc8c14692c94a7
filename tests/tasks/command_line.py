"""Convert and check a file on the command line, and describe it as JSON."""

import json
import subprocess
import sys

import numpy as np

import binsparse_levels as bl


def run(*words):
    return subprocess.run([sys.executable, "-m", "binsparse_levels", *words], check=True, capture_output=True).stdout


bl.write("a.h5", np.eye(5))
run("convert", "a.h5", "b.zarr", "--format", "csf")
run("check", "b.zarr")
assert json.loads(run("info", "b.zarr", "--json"))["format"] == "DCSR"
