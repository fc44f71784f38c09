# SPDX-License-Identifier: Apache-2.0
"""All operations with one rank: what they give, on every kind of array, and what they refuse."""

import inspect
import os
import pickle
from typing import Any

import ciuic
import numpy
import pytest
import torch
from ciuic import CiuicContext, context

OPERATIONS = [
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_v",
    "barrier",
    "broadcast",
    "scatter",
    "scatter_v",
    "all_to_all",
    "all_to_all_v",
    "all_gather",
    "all_gather_v",
    "gather",
    "gather_v",
    "send",
    "recv",
]
OTHERS = [
    "all_gather_object",
    "gather_object",
    "broadcast_object",
    "scatter_object",
    "send_object",
    "recv_object",
    "coalesce",
    "persistent",
]


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", [*OPERATIONS, *(f"{name}_async" for name in OPERATIONS), *OTHERS])
def test_methods_are_the_functions(name: str) -> None:
    function, method = (
        parameters_of(getattr(ciuic, name)),
        parameters_of(getattr(CiuicContext, name)),
    )
    assert function.pop("context").default is None
    assert method.pop("self")
    assert list(method) == list(function)
    for parameter, of_function in function.items():
        of_method = method[parameter]
        assert of_method.default == of_function.default, parameter
        assert of_method.kind == of_function.kind, parameter
        assert of_method.annotation == of_function.annotation, parameter
    assert method["timeout_s"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", OPERATIONS)
def test_async_ones_take_the_same(name: str) -> None:
    blocking, starting = getattr(ciuic, name), getattr(ciuic, name + "_async")
    assert parameters_of(blocking) == parameters_of(starting)
    returned = inspect.signature(starting).return_annotation
    assert returned == ("ReceiveHandle" if name == "recv" else "Handle")


@pytest.mark.parametrize("name", [*OPERATIONS, *OTHERS])
def test_everything_is_described(name: str) -> None:
    text = inspect.getdoc(getattr(ciuic, name)) or ""
    for word in parameters_of(getattr(ciuic, name)):
        assert word in text or name == "barrier", f"{name} says nothing of {word}"
    if name != "barrier":
        assert "Raises:" in text
    assert "Source: ``Communicator::" in text


def arrays() -> list[Any]:
    base = numpy.arange(24.0).reshape(4, 6)
    frozen = base.copy()
    frozen.flags.writeable = False
    tensor = torch.arange(24.0).reshape(4, 6)
    return [base, base[:, ::2], base.T, frozen, base[:0], tensor, tensor.T, tensor[1:, ::3]]


def is_same(got: Any, expected: Any) -> bool:
    return (
        type(got) is type(expected)
        and got.dtype == expected.dtype
        and bool(got.shape == expected.shape and (got == expected).all())
    )


@pytest.mark.parametrize("number", range(len(arrays())))
def test_alone_everything_is_a_copy(ctx: CiuicContext, number: int) -> None:
    x = arrays()[number]
    rows = x.shape[0]
    assert is_same(ctx.reduce_scatter(x), x)
    assert is_same(ctx.reduce_scatter([x]), x)
    assert is_same(ctx.reduce_scatter_v(x, counts=[rows]), x)
    assert is_same(ctx.reduce_scatter_v([x]), x)
    assert is_same(ctx.all_to_all(x), x)
    assert is_same(ctx.all_to_all([x])[0], x)
    assert is_same(ctx.all_to_all_v(x, [rows]), x)
    assert is_same(ctx.all_to_all_v(x, [rows], [rows]), x)
    assert is_same(ctx.all_to_all_v([x])[0], x)
    assert is_same(ctx.all_gather_v(x)[0], x)
    assert is_same(ctx.all_gather_v(x, [rows])[0], x)
    assert is_same(ctx.gather(x)[0], x)
    assert is_same(ctx.gather_v(x)[0], x)
    for call in (ctx.scatter, ctx.scatter_v):
        out = x * 0
        assert call(out, [x]) is out
        assert is_same(out, x)
    out = x * 0
    handle = ctx.send_async(x, 0)
    assert ctx.recv(out, 0) == 0
    handle.wait()
    assert is_same(out, x)


def test_results_are_new(ctx: CiuicContext) -> None:
    x = numpy.ones(4)
    results = [
        ctx.reduce_scatter(x),
        ctx.reduce_scatter_v([x]),
        ctx.all_to_all(x),
        ctx.all_to_all_v(x, [4]),
        *ctx.all_gather_v(x),
        *ctx.gather(x),
    ]
    x[...] = 9
    assert all((result == 1).all() for result in results)


def test_a_list_of_rows_is_not_copied(ctx: CiuicContext) -> None:
    """Arrays that lie one after the other travel from where they are."""
    from ciuic import parts

    whole = numpy.ones((1, 5))
    assert parts.even("all_to_all", list(whole), ctx).place[0] == whole.ctypes.data


REFUSED = {
    "reduce_scatter: rows": lambda ctx: ctx.reduce_scatter(numpy.array(1.0)),
    "reduce_scatter: list": lambda ctx: ctx.reduce_scatter([numpy.ones(1)] * 2),
    "reduce_scatter: nothing": lambda ctx: ctx.reduce_scatter(3),
    "reduce_scatter: op": lambda ctx: ctx.reduce_scatter(numpy.ones(1), CiuicContext.BAND),
    "reduce_scatter: dtype": lambda ctx: ctx.reduce_scatter(numpy.ones(1, "S3")),
    "reduce_scatter_v: no counts": lambda ctx: ctx.reduce_scatter_v(numpy.ones(3)),
    "reduce_scatter_v: sum": lambda ctx: ctx.reduce_scatter_v(numpy.ones(3), counts=[2]),
    "reduce_scatter_v: number": lambda ctx: ctx.reduce_scatter_v(numpy.ones(3), counts=[1, 2]),
    "reduce_scatter_v: negative": lambda ctx: ctx.reduce_scatter_v(numpy.ones(3), counts=[-3]),
    "reduce_scatter_v: fraction": lambda ctx: ctx.reduce_scatter_v(numpy.ones(3), counts=[3.0]),
    "reduce_scatter_v: counts of a list": lambda ctx: ctx.reduce_scatter_v(
        [numpy.ones(3)], counts=[3]
    ),
    "all_to_all_v: no splits": lambda ctx: ctx.all_to_all_v(numpy.ones(3)),
    "all_to_all_v: sum": lambda ctx: ctx.all_to_all_v(numpy.ones(3), [4]),
    "all_to_all_v: text": lambda ctx: ctx.all_to_all_v(numpy.ones(3), "3"),
    "all_to_all_v: outputs": lambda ctx: ctx.all_to_all_v(numpy.ones(3), [3], [1, 2]),
    "all_to_all_v: rows": lambda ctx: ctx.all_to_all_v([numpy.array(1.0)]),
    "all_gather_v: rows": lambda ctx: ctx.all_gather_v(numpy.array(1.0)),
    "all_gather_v: counts": lambda ctx: ctx.all_gather_v(numpy.ones(3), [2]),
    "gather_v: counts": lambda ctx: ctx.gather_v(numpy.ones(3), 0, [2]),
    "gather: dst": lambda ctx: ctx.gather(numpy.ones(3), 1),
    "scatter: nothing given": lambda ctx: ctx.scatter(numpy.ones(3)),
    "scatter: shape": lambda ctx: ctx.scatter(numpy.ones(3), [numpy.ones(4)]),
    "scatter: array": lambda ctx: ctx.scatter(numpy.ones(3), numpy.ones((2, 3))),
    "scatter: dtype": lambda ctx: ctx.scatter(numpy.ones(3), [numpy.ones(3, "int64")]),
    "scatter: src": lambda ctx: ctx.scatter(numpy.ones(3), [numpy.ones(3)], src=1),
    "scatter_v: one array": lambda ctx: ctx.scatter_v(numpy.ones(3), numpy.ones((1, 3))),
    "send: dst": lambda ctx: ctx.send(numpy.ones(3), -1),
    "send: rank": lambda ctx: ctx.send(numpy.ones(3), 1.0),
    "send: tag": lambda ctx: ctx.send(numpy.ones(3), 0, ciuic.MAX_TAG + 1),
    "send: any tag": lambda ctx: ctx.send(numpy.ones(3), 0, None),
    "recv: src": lambda ctx: ctx.recv(numpy.ones(3), 1),
    "recv: tag": lambda ctx: ctx.recv(numpy.ones(3), 0, -1),
    "subgroup: rank": lambda ctx: ctx.subgroup([0, 1]),
    "subgroup: text": lambda ctx: ctx.subgroup("0"),
    "split: color": lambda ctx: ctx.split(-1),
    "split: key": lambda ctx: ctx.split(0, 1 << 40),
    "objects": lambda ctx: ctx.all_gather_object(1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(ctx: CiuicContext, what: str) -> None:
    with pytest.raises(ValueError, match=r"Nothing was sent"):
        REFUSED[what](ctx)
    assert (ctx.all_reduce(numpy.ones(3)) == 1).all()  # the context is still good


def test_members_that_cannot_be(ctx: CiuicContext) -> None:
    for ranks in ([], [0, 0]):
        with pytest.raises(ValueError, match="subgroup"):
            ctx.subgroup(ranks)
    assert ctx.split(None) is None
    with ctx.split(3) as alone, ctx.subgroup([0]) as also:
        assert (alone.world_size, also.rank) == (1, 0)


def test_what_is_written_can_be_written(ctx: CiuicContext) -> None:
    frozen = numpy.ones(3)
    frozen.flags.writeable = False
    shared = numpy.lib.stride_tricks.as_strided(numpy.ones(6), (3, 3), (8, 8))
    for x, text in ((frozen, "read-only"), (shared, "share memory")):
        for call in (
            lambda x=x: ctx.scatter(x, [x.copy()]),
            lambda x=x: ctx.scatter_v(x, [x.copy()]),
            lambda x=x: ctx.recv(x, 0),
        ):
            with pytest.raises(ValueError, match=text):
                call()
    assert (frozen == 1).all()


# ---- calls together ----


def test_what_a_block_refuses(ctx: CiuicContext) -> None:
    x = numpy.ones(3)
    blocking = {
        "all_reduce": lambda: ctx.all_reduce(x),
        "of a list": lambda: ctx.all_reduce([x, numpy.ones(2)]),
        "reduce": lambda: ctx.reduce(x),
        "broadcast of a list": lambda: ctx.broadcast([x, numpy.ones(2)]),
        "barrier": ctx.barrier,
        "recv": lambda: ctx.recv(x),
        "counts": lambda: ctx.all_gather_v_async(x),
        "splits": lambda: ctx.all_to_all_v_async(x, [3]),
        "timeout_s": lambda: ctx.reduce_async(x, timeout_s=3),
        "parameters": lambda: ctx.all_reduce_async([torch.nn.Parameter(torch.ones(2))]),
        "subgroup": lambda: ctx.subgroup([0]),
        "split": lambda: ctx.split(0),
        "shrink": ctx.shrink,
        "coalesce": ctx.coalesce().__enter__,
        "persistent": ctx.persistent().__enter__,
        "start": None,
    }
    with ctx.persistent() as step:
        ctx.all_reduce_async(x)
    blocking["start"] = step.start
    for block in (ctx.coalesce, ctx.persistent):
        for name, call in blocking.items():
            with pytest.raises(ValueError, match=r"Nothing was sent"), block():
                call()
            assert (ctx.all_reduce(x) == 1).all(), name


def test_a_block_is_entered_once(ctx: CiuicContext) -> None:
    group = ctx.coalesce()
    with pytest.raises(ValueError, match="has not ended"):
        group.wait()
    assert not group.done()
    with group:
        handle = ctx.all_reduce_async(numpy.ones(3))
        with pytest.raises(ValueError, match="has not ended"):
            handle.wait()
        with pytest.raises(ValueError, match="has not ended"):
            group.wait()
        assert not handle.done()
    group.wait()
    assert handle.done()
    with pytest.raises(ValueError, match="cannot be entered again"), group:
        pass


def test_an_empty_block(ctx: CiuicContext) -> None:
    with ctx.coalesce() as group:
        pass
    group.wait()
    assert group.done()
    with ctx.persistent() as step:
        pass
    step.run()


def test_a_refusal_sends_nothing(ctx: CiuicContext) -> None:
    x = numpy.ones(3)
    with pytest.raises(ValueError, match="_async"), ctx.coalesce() as group:
        handle = ctx.all_reduce_async(x)
        ctx.barrier()
    for waits in (group, handle):
        with pytest.raises(ValueError, match="ended with an error"):
            waits.wait()
        assert not waits.done()


def test_receives_from_any_source(ctx: CiuicContext) -> None:
    x, y = numpy.ones(3), numpy.zeros(3)
    with ctx.coalesce() as group:
        ctx.send_async(x, 0, tag=4)
        handle = ctx.recv_async(y, tag=None)
    group.wait()
    assert (handle.wait(), handle.source, handle.tag) == (0, 0, 4)
    for tags in ((None, 0), (0, None)):
        with pytest.raises(ValueError, match="several receives"), ctx.coalesce():
            for tag in tags:
                ctx.recv_async(y, 0, tag)


def test_persistent_refuses_copies(ctx: CiuicContext) -> None:
    wide = numpy.ones((4, 6))
    apart = [numpy.ones(3), numpy.ones(3)]
    for call in (
        lambda: ctx.all_reduce_async(wide[:, ::2]),
        lambda: ctx.all_gather_async(wide.T),
        lambda: ctx.send_async(wide[:, 1], 0),
        lambda: ctx.all_reduce_async(apart),
        lambda: ctx.broadcast_async([wide[:, 1]]),
        lambda: ctx.all_to_all_async([wide[:, 1]]),
    ):
        with pytest.raises(ValueError, match=r"contiguous.*Nothing was sent"), ctx.persistent():
            call()
    with ctx.persistent() as step:  # these are in one piece
        ctx.all_reduce_async(list(wide))
        handle = ctx.all_to_all_async([wide])
    wide[...] = 7
    step.run()
    assert (handle.wait()[0] == 7).all()


def test_persistent_before_its_time(ctx: CiuicContext) -> None:
    with ctx.persistent() as step:
        handle = ctx.all_gather_async(numpy.ones(2))
        with pytest.raises(ValueError, match="has not ended"):
            step.start()
    with pytest.raises(ValueError, match="start"):
        handle.wait()
    step.run()
    assert (handle.wait()[0] == 1).all()
    ctx.close()
    with pytest.raises(ciuic.ClosedError):
        step.start()


def test_the_context_may_go_before_its_calls(no_launcher: None) -> None:
    x = numpy.ones(2)
    context = CiuicContext(1, 0)
    with context.persistent() as step:
        context.all_reduce_async(x)
    del context
    step.run()


def test_a_closed_context(ctx: CiuicContext) -> None:
    ctx.close()
    with pytest.raises(ciuic.ClosedError), ctx.coalesce():
        ctx.all_reduce_async(numpy.ones(2))
    x = numpy.ones(2)
    for call in (
        lambda: ctx.reduce_scatter(x),
        lambda: ctx.all_to_all(x),
        lambda: ctx.gather_v(x),
        lambda: ctx.send(x, 0),
        lambda: ctx.subgroup([0]),
        lambda: ctx.split(0),
        ctx.barrier,
    ):
        with pytest.raises(ciuic.ClosedError):
            call()


def test_a_default_context_will_do(monkeypatch: pytest.MonkeyPatch, ctx: CiuicContext) -> None:
    monkeypatch.setattr(context, "_default", ctx)
    monkeypatch.setattr(context, "_default_pid", os.getpid())
    assert ciuic.all_to_all(numpy.ones(2)).tolist() == [1, 1]
    with ciuic.coalesce() as group:
        handle = ciuic.gather_async(numpy.ones(2))
    group.wait()
    assert handle.wait()[0].tolist() == [1, 1]


def test_objects(no_launcher: None) -> None:
    class Local:
        pass

    with CiuicContext(1, 0, allow_pickle=True) as ctx:
        thing = {"a": [1, (2, 3)]}
        assert ctx.all_gather_object(thing) == [thing]
        assert ctx.gather_object(thing) == [thing]
        assert ctx.broadcast_object(thing) is thing
        assert ctx.scatter_object([thing]) == thing
        with pytest.raises(ValueError, match="2 objects"):
            ctx.scatter_object([1, 2])
        with pytest.raises((pickle.PicklingError, AttributeError)):
            ctx.all_gather_object(Local())
        with pytest.raises(ValueError, match="block"), ctx.coalesce():
            ctx.broadcast_object(thing)
        with ctx.split(0) as group, group.subgroup([0]) as part:
            assert part.all_gather_object(1) == [1]
