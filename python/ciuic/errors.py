# SPDX-License-Identifier: Apache-2.0
"""The exceptions, and the one table that turns a Status of the C++ core into one of them."""

from __future__ import annotations

import builtins

from ciuic import _native


class CiuicError(Exception):
    """Root of every exception of this package."""


class InvalidArgumentError(CiuicError, ValueError):
    """An argument that no call can take. Nothing was sent."""


class UnsupportedError(CiuicError, ValueError):
    """Not defined, such as an ``op`` on a dtype. Nothing was sent."""


class MismatchError(CiuicError):
    """The ranks' calls, options or versions differ."""


class TimeoutError(CiuicError, builtins.TimeoutError):
    """A peer did not come or stayed silent; the message names it."""


class PeerLostError(CiuicError, ConnectionError):
    """A peer's process or connection is gone; the message names it."""


class AbortedError(CiuicError):
    """Ended by ``close()`` or Ctrl-C on some rank, or by an earlier error."""


class ClosedError(CiuicError):
    """The context was closed, or the process has forked since it was made."""


class ResourceError(CiuicError):
    """Memory, descriptors, an address or a port that was not to be had."""


class SecretError(CiuicError, PermissionError):
    """A secret that does not match, or an address that may not be used."""


class UnavailableError(CiuicError):
    """A library, device, backend or place to meet that is not there."""


class SystemFailureError(CiuicError):
    """Any other failure of the operating system; the message has the errno."""


class RankFailedError(CiuicError):
    """A rank that this process started has failed.

    Attributes:
        rank: The rank that failed first.
        exit_code: What its process ended with; 128 + n where signal n ended it.
    """

    def __init__(self, message: str, rank: int, exit_code: int) -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code


_ERROR_OF_CODE: dict[str, type[CiuicError]] = {
    "invalid_argument": InvalidArgumentError,
    "unsupported": UnsupportedError,
    "mismatch": MismatchError,
    "timeout": TimeoutError,
    "peer_lost": PeerLostError,
    "aborted": AbortedError,
    "closed": ClosedError,
    "resource": ResourceError,
    "permission": SecretError,
    "unavailable": UnavailableError,
    "system": SystemFailureError,
}

_ERROR_OF_NUMBER = {
    number: _ERROR_OF_CODE.get(name, CiuicError) for name, number in _native.status_codes.items()
}


def error_for(code: int, message: str) -> CiuicError:
    """The exception for a ``StatusCode`` of include/ciuic/status.h."""
    return _ERROR_OF_NUMBER.get(code, CiuicError)(message)


_native.set_error_factory(error_for)
