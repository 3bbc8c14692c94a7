"""NetCDF: writes from several threads."""

import subprocess
import sys
import tempfile


def test_threads_write_netcdf():
    code = """
import sys, threading
from binsparse_levels import pack, write
tensor = pack([range(500)], 1.0, (500,), "CVEC")
work = lambda k: [write(f"{sys.argv[1]}/{k}.nc", tensor, overwrite=True) for _ in range(10)]
threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    with tempfile.TemporaryDirectory() as folder:
        assert subprocess.run([sys.executable, "-c", code, folder]).returncode == 0
