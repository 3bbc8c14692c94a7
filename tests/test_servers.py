"""The servers that tests use."""

import pytest

import binsparse_levels as bl


@pytest.mark.sampled(3)
@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_a_proxy_counts_what_a_library_asks_an_s3_server(counted_s3, library):
    pytest.importorskip(library)
    proxy, url = counted_s3
    if library == "obstore":
        from obstore.store import from_url

        store = from_url(url)
        store.put("a", b"0123456789")
        with proxy.counting() as seen:
            assert bytes(store.get_range("a", start=2, end=5)) == b"234"
    else:
        import fsspec

        fs = fsspec.filesystem("s3")
        fs.pipe_file(f"{url}/a", b"0123456789")
        with proxy.counting() as seen:
            assert fs.cat_file(f"{url}/a", start=2, end=5) == b"234"
    assert [(request.method, request.range, request.status, request.down) for request in seen] == [
        ("GET", "bytes=2-4", 206, 3)
    ]


def test_a_put_on_condition_is_refused(s3):
    obstore = pytest.importorskip("obstore")
    store = obstore.store.from_url(s3)
    store.put("a", b"first", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        store.put("a", b"second", mode="create")
    assert bytes(store.get("a").bytes()) == b"first"


@pytest.mark.slow
def test_an_endpoint_without_encryption_needs_no_second_variable(s3, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    tensor = bl.pack_dense([[0, 2.0], [3, 0]], "CSR")
    bl.write(f"{s3}/a.zarr", tensor)
    one = lambda _: ([[0], [1]], [2.0])  # noqa: E731
    bl.build(one, f"{s3}/b.zarr", (2, 2), "CSR", count=1, work=f"{s3}/work")
    assert bl.open(f"{s3}/a.zarr").equals(tensor)
    assert bl.read(f"{s3}/b.zarr").nnz == 1
