# SPDX-License-Identifier: Apache-2.0
"""``ciuic run --replace gloo``: the groups of an unchanged program are carried by Ciuic.

PyTorch asks for gloo by name in many places, and so do programs. So the name stays: what changes
is what PyTorch makes such a group of. A group so made answers "gloo" where a program asks for its
backend, and ``monitored_barrier``, which takes no other name, works.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from torch._C._distributed_c10d import Backend
from torch.distributed import distributed_c10d as c10d


def replace_gloo() -> None:
    """Have torch.distributed make groups of Ciuic's where it would make gloo's."""
    if not c10d.is_gloo_available() or isinstance(c10d.ProcessGroupGloo, _Replacement):
        return
    if not hasattr(Backend, "options"):
        # torch sets names and ranks there of a group of gloo's, which has an attribute of its own.
        Backend.options = property(lambda _: SimpleNamespace())  # type: ignore[assignment]
    c10d.ProcessGroupGloo = _Replacement(c10d.ProcessGroupGloo)


class _Replacement:
    """Stands where torch.distributed names the class of gloo's groups.

    RPC makes such groups by another name, and goes on doing so: it hands a backend about as a
    group, which gloo's class alone allows.
    """

    def __init__(self, replaced: type) -> None:
        self._replaced = replaced

    def __call__(self, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        from ciuic.torch.backend import create_backend

        options = SimpleNamespace(
            store=store,
            group_rank=rank,
            group_size=size,
            timeout=timeout,
            group_id="gloo",  # the store is the group's own
            global_ranks_in_group=[],
        )
        return create_backend(options, None, "gloo")

    def __instancecheck__(self, instance: Any) -> bool:
        if isinstance(instance, self._replaced):
            return True
        return isinstance(instance, Backend) and instance.name() == "ciuic"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replaced, name)
