# SPDX-License-Identifier: Apache-2.0
"""Who a process is and where it meets its peers, by arguments and environment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import ciuic
import numpy
import pytest
import torch
from ciuic import CiuicContext, rendezvous


def test_without_anything() -> None:
    with pytest.raises(ciuic.UnavailableError, match=r"ciuic run.*torchrun.*mpiexec"):
        CiuicContext()
    with pytest.raises(ciuic.UnavailableError, match="rank was not given"):
        CiuicContext(world_size=2)


def test_no_place_to_meet_lists_what_was_tried() -> None:
    with pytest.raises(ciuic.UnavailableError) as raised:
        CiuicContext(world_size=2, rank=0)
    for tried in ("store=", "torch.distributed", "CIUIC_STORE", "MASTER_ADDR", "PMI_FD", "PMIX"):
        assert tried in str(raised.value)


def test_one_rank_needs_no_place() -> None:
    for arguments in ({"world_size": 1}, {"world_size": 1, "rank": 0}):
        with CiuicContext(**arguments) as context:
            assert (context.rank, context.world_size) == (0, 1)


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ],
)
def test_launchers(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(size, "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert rendezvous.launched_as() == (3, 4)
    assert rendezvous.local_rank() in (3, -1)
    monkeypatch.setenv(size, "many")
    with pytest.raises(ValueError, match=f"{size}=many is no number"):
        rendezvous.launched_as()


def test_nodes_counted_as_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="count nodes"):
        CiuicContext()
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "4")
    assert rendezvous.launched_as() == (1, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"world_size": 8}, "the launcher started 2"),
        ({"world_size": 8, "rank": 0}, "the launcher started 2"),
        ({"world_size": 2, "rank": 2}, "rank=2 is not from 0 to 1"),
        ({"world_size": 2, "rank": -1}, "rank=-1"),
        ({"world_size": 0, "rank": 0}, "less than 1"),
        ({"buffer_size": 0}, "buffer_size"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_impossible(monkeypatch: pytest.MonkeyPatch, arguments: dict, message: str) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        CiuicContext(**arguments)


@pytest.mark.parametrize(
    "url", ["nonsense", "http://a:1", "tcp://", "file://relative", "tcp://a:0"]
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises((ValueError, ciuic.CiuicError)):
        CiuicContext(world_size=2, rank=0, store=url, timeout_s=0.3)


def test_a_store_must_be_one() -> None:
    with pytest.raises(ValueError, match="is no store"):
        CiuicContext(world_size=2, rank=0, store=object())


def test_python_store_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        def set(self, key: str, value: bytes) -> None:
            raise RuntimeError("the store is on fire")

        def get(self, key: str, timeout_ms: int) -> bytes:
            raise RuntimeError("the store is on fire")

        def add(self, key: str, amount: int) -> int:
            raise RuntimeError("the store is on fire")

    with pytest.raises(ciuic.CiuicError, match="on fire"):
        CiuicContext(world_size=2, rank=0, store=Broken(), timeout_s=1)


class DictionaryStore:
    """A user's own store: any object with ``set``, ``get`` and ``add``."""

    name = "dictionary"

    def __init__(self) -> None:
        self._values: dict = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout_ms: int) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_ms / 1000):
                raise ciuic.TimeoutError(f"key {key!r} is not there")
            return self._values[key]

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self._values[key] = self._values.get(key, 0) + amount
            return self._values[key]


@pytest.mark.parametrize(
    ("make_store", "name"),
    [(torch.distributed.HashStore, "torch"), (DictionaryStore, "dictionary")],
)
def test_a_store_that_is_given(make_store, name: str) -> None:
    """Two ranks, as threads of this process, meet in it."""
    store = make_store()

    def run(rank: int) -> None:
        with CiuicContext(2, rank, store=store, group_name="pair", timeout_s=60) as context:
            x = numpy.full(3, rank + 1.0)
            context.all_reduce(x)
            assert x.tolist() == [3, 3, 3]
            assert context.describe()["store"] == name
            assert context.describe()["store_is_private"] is False
            context.barrier()

    with ThreadPoolExecutor(2) as ranks:
        list(ranks.map(run, range(2)))


def test_no_time_out_at_all(tmp_path) -> None:
    def join(rank: int) -> float:
        endless = float("inf")
        context = CiuicContext(
            2, rank, timeout_s=endless, store=f"file://{tmp_path}/store", group_name="endless"
        )
        with context:
            x = context.all_reduce(numpy.ones(1), timeout_s=endless)
            context.barrier()
            return float(x[0])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(join, range(2))) == [2.0, 2.0]


class StuckStore:
    """As torch's, whose server does not answer any more."""

    name = "stuck"

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def set(self, key: str, value: bytes) -> None:
        self.let_go.wait()

    def get(self, key: str, timeout_ms: int) -> bytes:
        self.let_go.wait()
        return b""

    def add(self, key: str, amount: int) -> int:
        self.let_go.wait()
        return 0


def test_a_store_that_never_returns_does_not_hold_the_join() -> None:
    store = StuckStore()
    with pytest.raises(ciuic.TimeoutError, match="a call of the store has not returned"):
        CiuicContext(world_size=2, rank=1, timeout_s=0.1, store=store)
    store.let_go.set()
