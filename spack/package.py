# A recipe for Spack, as `py_binsparse_levels` in its repository of packages. A test compares it with pyproject.toml.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import default_args, depends_on, license, version


class PyBinsparseLevels(PythonPackage):
    """Sparse tensors of any rank as trees of levels: the Binsparse format,
    packed and read at memory speed."""

    homepage = "https://binsparse.org"  # of the specification; the repository has no public address yet
    pypi = "binsparse-levels/binsparse_levels-0.1.0.tar.gz"

    license("MIT")

    version("0.1.0")  # a release adds sha256=, as .ci/packages prints it

    depends_on("py-hatchling", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-numpy@2.0:")
        depends_on("py-numba@0.62.1:")
        depends_on("py-h5py@3.12:")
        depends_on("py-zarr@3.1.4:3")
        depends_on("py-numcodecs@0.16.6:")
        depends_on("py-google-crc32c@1.6:")
        depends_on("py-filelock@3.21:")
