"""Requests to object stores, which are sent again where an answer is lost or refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..containers.remote import RETRY
from ..errors import needing

_PAUSES = 0.05, 0.1, 0.2, 0.4, 0.8  # seconds


def obstore_module() -> Any:
    """The module obstore. Raises PackageMissingError where it is not installed."""
    with needing("remote"):
        import obstore.store
    return obstore


def bucket_at(url: str) -> Any:
    """The store of obstore's at the URL of a prefix."""
    return obstore_module().store.from_url(url, retry_config=RETRY)


def bucket_of(url: str) -> tuple[Any, str]:
    """The store that has an object, and its key."""
    folder, _, name = url.rpartition("/")
    return bucket_at(folder), name


def asked(call: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """The answer to a request that may be sent again.

    obstore repeats what a server under load refuses. It repeats neither an answer that is cut, nor a write on a
    condition. Servers and proxies also deny access, or what was just written, for a moment. So all of these are asked
    again, with growing pauses. Raises the error that came most often; at once that a condition does not hold.
    """
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    errors: list[Exception] = []
    for pause in (0.0, *_PAUSES):
        time.sleep(pause)
        try:
            return call(*given, **options)
        except (AlreadyExistsError, PreconditionError):
            raise
        except Exception as error:
            errors.append(error)
    raise max(errors, key=lambda error: sum(type(other) is type(error) for other in errors))
