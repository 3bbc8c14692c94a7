"""NPZ: checksums of members that are read as a whole."""

import numpy as np
import pytest

import binsparse_levels
from binsparse_levels import ContainerError, pack_dense, write


def test_the_checksum_of_a_whole_member_is_looked_at(tmp_path):
    write(tmp_path / "a.npz", pack_dense(np.arange(1.0, 10_001).reshape(100, 100), "CSR"))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[raw.index(np.array([9000.0, 9001]).tobytes())] ^= 1
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(ContainerError):
        binsparse_levels.open(tmp_path / "a.npz").load()
