# SPDX-License-Identifier: Apache-2.0
"""What is refused, before anything is sent, with a message that says what to do."""

import gc
import os
import sys

import ciuic
import numpy
import pytest
import torch
from ciuic import CiuicContext, errors


def test_dtypes_that_are_only_moved(ctx: CiuicContext) -> None:
    for x in (
        torch.ones(2, dtype=torch.float8_e4m3fnuz),
        numpy.ones(2, dtype="datetime64[s]"),
        numpy.ones(2, dtype=numpy.longdouble),
        numpy.ones(2, dtype="S8"),
    ):
        for call in (ctx.all_reduce, ctx.reduce):
            with pytest.raises(ValueError, match=r"cannot be reduced.*float32.*Nothing was sent"):
                call(x)
            with pytest.raises(ValueError, match=r"cannot be reduced.*float32.*Nothing was sent"):
                ctx.all_reduce([x, x.copy() if hasattr(x, "copy") else x.clone()])


def test_objects(ctx: CiuicContext) -> None:
    for dtype in (object, [("a", object)], numpy.dtypes.StringDType()):
        x = numpy.zeros(2, dtype=dtype)
        for call in (ctx.all_reduce, ctx.reduce, ctx.broadcast, ctx.all_gather):
            with pytest.raises(ValueError, match=r"addresses of objects.*Nothing was sent"):
                call(x)


def test_foreign_byte_order(ctx: CiuicContext) -> None:
    for call in (ctx.all_reduce, ctx.reduce):
        with pytest.raises(ValueError, match=r"byte order.*astype.*Nothing was sent"):
            call(numpy.ones(2, dtype=">f4"))


def test_read_only(ctx: CiuicContext) -> None:
    x = numpy.ones(3)
    ctx.all_reduce(x)
    x.flags.writeable = False
    for call in (ctx.all_reduce, ctx.all_reduce_async, ctx.broadcast):
        with pytest.raises(ValueError, match="read-only"):
            call(x)
    with pytest.raises(ValueError, match="read-only"):
        ctx.all_reduce([numpy.ones(2), x])
    assert ctx.reduce(x).tolist() == [1, 1, 1]  # they only read it
    assert ctx.all_gather(x)[0].tolist() == [1, 1, 1]


def test_shared_elements(ctx: CiuicContext) -> None:
    for x in (
        torch.ones(1, 3).expand(4, 3),
        torch.ones(6).as_strided((3, 3), (1, 1)),
        numpy.lib.stride_tricks.as_strided(numpy.ones(6), (3, 3), (8, 8)),
    ):
        with pytest.raises(ValueError, match="share memory"):
            ctx.all_reduce(x)
        assert (ctx.reduce(x) == 1).all()
        assert (ctx.all_gather(x)[0] == 1).all()


def test_no_arrays(ctx: CiuicContext) -> None:
    for x in (3, None, "text", [1, 2], {"a": 1}, torch.nn.Linear(1, 1)):
        with pytest.raises(ciuic.InvalidArgumentError, match="array"):
            ctx.all_reduce(x)


def test_layouts_and_wrappers(ctx: CiuicContext) -> None:
    with pytest.raises(ValueError, match="layout"):
        ctx.all_reduce(torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="masked"):
        ctx.all_reduce(numpy.ma.ones(3))
    with pytest.raises(ValueError, match="meta"):
        ctx.all_reduce(torch.ones(3, device="meta"))


def test_mixed_dtypes(ctx: CiuicContext) -> None:
    for arrays in (
        [torch.ones(2), torch.ones(2, dtype=torch.float64)],
        [torch.ones(2), numpy.ones(2)],
    ):
        with pytest.raises(ValueError, match="float32, float64"):
            ciuic.all_reduce(arrays, context=ctx)
        with pytest.raises(ValueError, match="float32, float64"):
            ctx.broadcast(arrays)


def test_mixed_devices(ctx: CiuicContext) -> None:
    with pytest.raises(ValueError, match="meta"):
        ctx.all_reduce([torch.ones(2), torch.ones(2, device="meta")])


def test_nothing_is_changed_by_a_refusal(ctx: CiuicContext) -> None:
    good, bad = torch.ones(3), torch.ones(3, dtype=torch.float8_e4m3fnuz)
    version = good._version
    with pytest.raises(ValueError, match="float8_e4m3fnuz"):
        ctx.all_reduce([good, bad])
    assert good.tolist() == [1, 1, 1]
    assert good._version in (version, version + 1)
    ctx.all_reduce(good)  # the context is still good


def test_a_single_parameter(ctx: CiuicContext) -> None:
    with pytest.raises(ValueError, match=r"x\.grad or x\.data"):
        ctx.all_reduce(torch.nn.Parameter(torch.ones(2)))
    with pytest.raises(ValueError, match="parameters and other arrays"):
        ctx.all_reduce([torch.nn.Parameter(torch.ones(2)), torch.ones(2)])


def test_ops(ctx: CiuicContext) -> None:
    for op in (CiuicContext.BAND, CiuicContext.BOR, CiuicContext.BXOR):
        what = f"{op.name.lower()} is not defined for float32, which has sum, .*for int32.* sent"
        for x in (torch.ones(2), numpy.ones((2, 2), dtype=numpy.float32).T):
            for _ in range(2):
                with pytest.raises(ValueError, match=what):
                    ctx.all_reduce(x, op)
                with pytest.raises(ValueError, match=what):
                    ctx.all_reduce([x], op)
                with pytest.raises(ciuic.UnsupportedError, match=what):
                    ctx.reduce(x, op=op)
    for op in (77, "sum", None):
        with pytest.raises(ciuic.InvalidArgumentError, match="no reduction operation"):
            ctx.all_reduce(torch.ones(2), op)


def test_ranks_and_times(ctx: CiuicContext) -> None:
    x = torch.ones(2)
    for rank in (-1, 1):
        with pytest.raises(ciuic.InvalidArgumentError, match="no rank"):
            ctx.reduce(x, dst=rank)
        with pytest.raises(ValueError, match="no rank"):
            ctx.broadcast(x, src=rank)
    for seconds in (0, -1, float("nan"), "60", [1]):
        with pytest.raises(ciuic.InvalidArgumentError, match="timeout_s"):
            ctx.all_reduce(x, timeout_s=seconds)
    ctx.all_reduce(x, timeout_s=0.5)
    with pytest.raises(TypeError, match="CiuicContext"):
        ciuic.all_reduce_async(x, context="ctx")


def test_wire_is_not_there_yet(ctx: CiuicContext) -> None:
    with pytest.raises(ciuic.UnsupportedError, match="not there yet"):
        ctx.all_reduce(torch.ones(2), wire="bf16")


def test_backends(no_launcher: None) -> None:
    for backend in ("auto", "native"):
        with CiuicContext(world_size=1, rank=0, backend=backend) as context:
            assert context.backend == "native"
    if not torch.cuda.is_available():
        with pytest.raises(ciuic.UnavailableError, match='"nccl" cannot be used: rank 0'):
            CiuicContext(world_size=1, rank=0, backend="nccl")
    with pytest.raises(ValueError, match="goes with backend='mpi'"):
        CiuicContext(world_size=1, rank=0, mpi_comm=1)
    with pytest.raises(ciuic.InvalidArgumentError, match="unknown"):
        CiuicContext(world_size=1, rank=0, backend="gloo")


def test_closed(ctx: CiuicContext) -> None:
    x = torch.ones(2)
    ctx.all_reduce(x)
    ctx.close()
    ctx.close()
    for call in (ctx.all_reduce, ctx.all_reduce_async, ctx.reduce, ctx.broadcast, ctx.all_gather):
        with pytest.raises(ciuic.ClosedError):
            call(x)
    with pytest.raises(ciuic.ClosedError):
        ctx.barrier()


def refused_in_a_child(call) -> bool:
    """Whether a forked child is told, by ``ClosedError``, that the fork is the reason."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            call()
        except ciuic.ClosedError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_after_fork(ctx: CiuicContext) -> None:
    x = torch.ones(2)
    ctx.all_reduce(x)
    assert refused_in_a_child(lambda: ctx.all_reduce(x))
    ctx.all_reduce(x)  # the parent's is as it was


def test_default_context_after_fork(monkeypatch: pytest.MonkeyPatch, no_launcher: None) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ciuic.context._default", None)
    with ciuic.default_context() as context:
        assert ciuic.default_context() is context
        ciuic.barrier()
        assert refused_in_a_child(ciuic.barrier)
        ciuic.barrier()


def test_dropped_contexts_leave_nothing(no_launcher: None) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    CiuicContext(world_size=1, rank=0).barrier()
    before = held()
    for _ in range(20):
        CiuicContext(world_size=1, rank=0).barrier()
    assert held() == before


def test_error_table() -> None:
    from ciuic import _native

    for name, number in _native.status_codes.items():
        error = errors.error_for(number, "text")
        assert isinstance(error, ciuic.CiuicError)
        assert str(error) == "text"
        if name != "ok":
            assert type(error) is errors._ERROR_OF_CODE[name]
            assert type(error) is not ciuic.CiuicError
    assert issubclass(ciuic.TimeoutError, TimeoutError)
    assert issubclass(ciuic.PeerLostError, ConnectionError)
    assert issubclass(ciuic.SecretError, PermissionError)
    for refusal in (ciuic.InvalidArgumentError, ciuic.UnsupportedError):
        assert issubclass(refusal, ValueError)


def test_contexts_are_not_pickled(ctx: CiuicContext) -> None:
    import pickle

    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(ctx)


def test_local_device() -> None:
    assert ciuic.local_device() == "cpu" or torch.cuda.is_available()
    assert sys.modules["torch"] is torch
