"""What is told of a faulty tensor, what `repair` mends, and what killed writers leave."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from binsparse_levels import ArrayError, LimitError, Tensor, cli, pack, read, repair, write
from binsparse_levels.errors import PathExistsError
from binsparse_levels.io import write_arrays
from binsparse_levels.limits import Limits
from binsparse_levels.tensors.encoding import encode_tensor


def stored(tmp_path, name="in.h5", format="CSR", **changes):
    """A file of a 20 x 50 matrix in which some arrays are others than they should be."""
    i, j = np.repeat(np.arange(20), 3), np.tile([4, 17, 40], 20)
    tensor = pack([i, j], np.arange(60.0), (20, 50), format)
    header, arrays = encode_tensor(tensor)
    for array, (place, value) in changes.items():
        arrays[array] = arrays[array].copy()
        arrays[array][place] = value
    write_arrays(tmp_path / name, header, arrays)
    return tmp_path / name, tensor


def test_a_fault_is_told_by_array_place_dimension_and_fiber(tmp_path):
    path, _ = stored(tmp_path, indices_1=(52, 99))
    with pytest.raises(
        ArrayError, match=r"in\.h5: indices_1\[52\]: 99 is outside dimension 1 of size 50, in fiber 17;"
    ):
        read(path)
    path, _ = stored(tmp_path, "turned.h5", "CSC", indices_1=(4, 20))
    with pytest.raises(
        ArrayError, match=r"turned\.h5: indices_1\[4\]: 20 is outside dimension 0 of size 20, in fiber 4;"
    ):
        read(path)


@pytest.mark.parametrize("count", [60, 3000])  # few are checked by numpy, more by kernels
def test_all_faults_up_to_a_limit_are_told(count):
    indices = np.full(count, 50)
    with pytest.raises(ArrayError) as caught:
        Tensor("CVEC", (50,), {"indices_0": indices}, np.ones(count))
    problems = [str(problem) for problem in caught.value.problems]
    assert problems[0] == "indices_0[0]: 50 is outside dimension 0 of size 50"
    assert problems[-1] == f"indices_0: {count} in all are out of range"


def test_entries_out_of_order_are_sorted(tmp_path):
    path, tensor = stored(tmp_path, indices_1=([0, 1], [17, 4]), values=([0, 1], [1.0, 0.0]))
    with pytest.raises(ArrayError, match="in fiber 0"):
        read(path)
    assert repair(path, tmp_path / "out.h5") == [f"{path}: entries: not in order, sorted"]
    assert read(tmp_path / "out.h5").equals(tensor)


@pytest.mark.parametrize(("policy", "value"), [("sum", 1.0), ("first", 0.0), ("last", 1.0)])
def test_duplicates_are_mended_in_a_named_way_only(tmp_path, policy, value):
    path, _ = stored(tmp_path, indices_1=(1, 4))
    with pytest.raises(ArrayError, match=r"\(0, 4\) is given more than once"):
        repair(path, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()
    repair(path, tmp_path / "out.h5", duplicates=policy)
    mended = read(tmp_path / "out.h5")
    assert mended.number_of_stored_values == 59
    assert mended.to_dense()[0, 4] == value


def test_what_would_have_to_be_invented_is_not_mended(tmp_path):
    for array, change in [("indices_1", (3, 99)), ("pointers_to_1", (4, 1000)), ("pointers_to_1", (0, 1))]:
        path, _ = stored(tmp_path, f"{array}{change[0]}.h5", **{array: change})
        with pytest.raises(ArrayError):
            repair(path, tmp_path / "out.h5", duplicates="sum")


def test_nothing_is_repaired_in_its_place(tmp_path):
    path, _ = stored(tmp_path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        repair(path, path)
    assert path.read_bytes() == before
    assert repair(path, tmp_path / "same.h5") == []


def test_repair_by_command(tmp_path, capsys):
    path, tensor = stored(tmp_path, indices_1=(1, 4))
    assert cli.main(["repair", str(path), str(tmp_path / "out.zarr")]) == 1
    assert cli.main(["repair", str(path), str(tmp_path / "out.zarr"), "--duplicates", "first"]) == 0
    assert "of duplicates the first" in capsys.readouterr().out
    assert read(tmp_path / "out.zarr").number_of_stored_values == tensor.number_of_stored_values - 1


def test_text_is_bounded_however_small_it_is_packed(tmp_path):
    write(tmp_path / "a.tns.gz", pack([np.arange(3000)], 1, (3000,), "CVEC"))
    with pytest.raises(LimitError, match="array_bytes"):
        read(tmp_path / "a.tns.gz", limits=Limits(array_bytes=1000))


# Leftovers

KILLED = """
import os, signal, sys
from binsparse_levels.containers.replacing import replacing, replacing_folder
with {0}(sys.argv[1], False) as part:
    if os.path.isdir(part):
        open(os.path.join(part, "x"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("way", "name"), [("replacing", "a.h5"), ("replacing_folder", "a.zarr")])
def test_what_a_killed_process_left_is_removed(tmp_path, monkeypatch, way, name):
    run = subprocess.run([sys.executable, "-c", KILLED.format(way), str(tmp_path / name)])
    assert run.returncode < 0
    (left,) = os.listdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: os.lstat(tmp_path / left).st_ctime + 86_500)
    write(tmp_path / name, pack([[0]], [1.0], (2,), "CVEC"))
    assert os.listdir(tmp_path) == [name]


# Cases that hostile use found


def test_text_is_repaired_too(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1.5\n1 1 2.5\n")
    repair(tmp_path / "a.mtx", tmp_path / "out.h5", duplicates="sum")
    assert read(tmp_path / "out.h5").values.tolist() == [4.0]


def test_repair_replaces_a_file_when_it_is_told_to(tmp_path):
    path, tensor = stored(tmp_path, indices_1=(slice(0, 3), [17, 4, 40]))
    write(tmp_path / "out.h5", tensor)
    with pytest.raises(PathExistsError):
        repair(path, tmp_path / "out.h5")
    assert repair(path, tmp_path / "out.h5", overwrite=True)
    assert cli.main(["repair", str(path), str(tmp_path / "out.h5"), "--overwrite"]) == 0
