"""Web servers and object stores: the store at a URL, and single files, whose blocks fsspec caches."""

from __future__ import annotations

import base64
import importlib.util
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from ..errors import ContainerError, PathMissingError, Problem, needing
from ..log import LOG, without_secrets
from ..thresholds import THRESHOLDS
from .base import wrap_errors

_WEB = {"http", "https"}
_CLOUDS = {"s3", "s3a", "gs", "az", "abfs", "abfss"}  # whose credentials obstore takes from the environment
RETRY: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}
TIMEOUT = timedelta(minutes=5)  # of a request to a web server, headers and body; the same as in fsspec

Fetch: TypeAlias = Callable[[int, int], tuple[str, bytes]]  # the version of a file, and its bytes start … stop - 1


def is_web(url: str) -> bool:
    return urlsplit(url).scheme in _WEB


def store_at(url: str) -> Any:
    """The obstore store at the URL of a web server or a cloud; None for a URL that fsspec opens."""
    parts = urlsplit(url)
    if parts.scheme in _WEB:
        from obstore.store import HTTPStore

        options: Any = {"allow_http": True, "timeout": TIMEOUT}
        user, at, host = parts.netloc.rpartition("@")
        if at:
            word = base64.b64encode(unquote(user).encode()).decode()
            options["default_headers"] = {"Authorization": f"Basic {word}"}
        return HTTPStore.from_url(parts._replace(netloc=host).geturl(), client_options=options, retry_config=RETRY)
    return cloud_store(url) if parts.scheme in _CLOUDS and importlib.util.find_spec("obstore") else None


def cloud_store(url: str) -> Any:
    """The obstore store at the URL of a cloud. An endpoint of the environment may be plain HTTP."""
    from obstore.store import from_url

    endpoints = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"))
    plain: Any = {"allow_http": True} if any(x.lower().startswith("http://") for x in endpoints) else {}
    return from_url(url, retry_config=RETRY, client_options=plain)


def file_at(url: str) -> Any:
    """The file at a URL, through obstore for web servers and clouds, else through fsspec. Its `version` changes with
    the file.

    If a server does not send ranges, the whole file is fetched. Raises ContainerError, PathMissingError.
    """
    with wrap_errors(url), needing("remote"):
        from fsspec.spec import AbstractBufferedFile

        parts = urlsplit(url)
        place, path = (url, "") if is_web(url) else (f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
        store = store_at(place)
        try:
            size, version, fetch = _by_fsspec(url) if store is None else _by_obstore(store, path, url)
        except FileNotFoundError:
            raise PathMissingError(Problem(url, "no such file; check the address")) from None

        class RemoteFile(AbstractBufferedFile):  # type: ignore[misc]
            def _fetch_range(self, start: int, stop: int) -> bytes:
                stop = min(stop, size)
                with wrap_errors(url):
                    now, raw = fetch(start, stop)
                    if now != version:
                        raise ContainerError(Problem(url, "the file has changed since it was opened; open it again"))
                    if len(raw) != stop - start:
                        what = f"sent {len(raw)} of {stop - start} bytes from byte {start} on; try again"
                        raise ContainerError(Problem(url, what))
                return raw

        file = RemoteFile(None, url, block_size=THRESHOLDS.remote_bytes, cache_type="blockcache", size=size)
        file.version = version
        return file


def _logged(url: str, place: Any, raw: bytes) -> bytes:
    LOG.debug("GET %s %s: %d bytes", without_secrets(url), place or "whole", len(raw))
    return raw


def _by_fsspec(url: str) -> tuple[int, str, Fetch]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    fetch = lambda *at: (system.ukey(path), _logged(url, at, system.cat_file(path, *at)))  # noqa: E731
    return system.info(path)["size"], system.ukey(path), fetch


def _by_obstore(store: Any, path: str, url: str) -> tuple[int, str, Fetch]:
    import obstore
    from obstore.exceptions import GenericError, NotSupportedError

    def got(options: Any, left: int = RETRY["max_retries"]) -> tuple[Any, bytes]:
        """The metadata of the file, and bytes. obstore repeats refused requests, but not truncated answers."""
        answer = obstore.get(store, path, options=options)
        try:
            return answer.meta, _logged(url, options, bytes(answer.bytes()))
        except GenericError:
            if not left:
                raise
        return got(options, left - 1)

    def version_of(meta: Any) -> str:
        return f"{meta['size']} {meta['e_tag'] or meta['last_modified']}"  # some servers report only the size

    try:
        meta, first = got({"range": (0, THRESHOLDS.remote_bytes)})
    except NotSupportedError:
        meta, first = got(None)
    version = version_of(meta)

    def fetch(start: int, stop: int) -> tuple[str, bytes]:
        if stop <= len(first):
            return version, first[start:stop]
        now, raw = got({"range": (start, stop)})
        return version_of(now), raw

    return meta["size"], version, fetch
