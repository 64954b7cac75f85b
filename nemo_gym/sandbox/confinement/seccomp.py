"""Build a seccomp filter that denies system calls for user namespaces, keyrings and shared memory.

In a user namespace of its own, a program could mount file systems of any size. The keyrings of this user are shared
with the server. Shared memory (System V objects and memory files) is denied only if no control group limits it.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

CLONE_NEWUSER = 0x10000000
X32_BIT = 0x40000000
"""The bit that marks the system calls of the x32 ABI on x86-64."""

_LOAD, _IS, _HAS_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _DENY = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


class _Machine(NamedTuple):
    """The kernel's constants for one architecture: its audit id and its system call numbers."""

    audit: int
    clone: int
    unshare: int
    keyrings: tuple[int, ...]
    """The numbers of add_key, request_key and keyctl."""
    memory: tuple[int, ...]
    """The numbers of shmget, msgget, semget and memfd_create."""


_CLONE3 = 435
_MACHINES = {
    "x86_64": _Machine(0xC000003E, 56, 272, (248, 249, 250), (29, 68, 64, 319)),
    "aarch64": _Machine(0xC00000B7, 220, 97, (217, 218, 219), (194, 186, 190, 279)),
}


def filter_program(*, counts_memory: bool) -> bytes:
    """Return the filter as an array of `struct sock_filter`. Raise `OSError` on an unknown architecture.

    `counts_memory` says whether a control group counts all memory. Only then is shared memory safe to allow.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        known = " and ".join(_MACHINES)
        raise OSError(f"system calls cannot be filtered on {platform.machine()}, only on {known}")
    denied = machine.keyrings if counts_memory else (*machine.keyrings, *machine.memory)
    program = [
        _step(_LOAD, _ARCHITECTURE),
        # Deny all calls of another architecture, because its numbers mean different calls.
        _step(_IS, machine.audit, skip=1),
        _deny(errno.ENOSYS),
        _step(_LOAD, _NUMBER),
        *_deny_if(_HAS_BIT, X32_BIT, errno.ENOSYS),
        # Deny clone3, because its flags are in memory, which a filter cannot read. The C library then uses clone.
        *_deny_if(_IS, _CLONE3, errno.ENOSYS),
    ]
    for number in denied:
        program += _deny_if(_IS, number, errno.EPERM)
    program += [
        _step(_IS, machine.clone, skip=1),
        _step(_IS, machine.unshare, otherwise=3),
        _step(_LOAD, _FIRST_ARGUMENT),
        *_deny_if(_HAS_BIT, CLONE_NEWUSER, errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _deny_if(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, otherwise=1), _deny(error)]


def _deny(error: int) -> bytes:
    return _step(_RETURN, _DENY | error)


def _step(code: int, value: int, *, skip: int = 0, otherwise: int = 0) -> bytes:
    """Return one BPF instruction. A test skips `skip` instructions if it is true, or else `otherwise` instructions."""
    return struct.pack("HBBI", code, skip, otherwise, value)
