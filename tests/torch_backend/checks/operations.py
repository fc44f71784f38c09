# SPDX-License-Identifier: Apache-2.0
"""Operations against what they shall give; see conftest.py."""

import functools

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)
COMPLEX = (torch.complex64, torch.complex128)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
ONLY_MOVED = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex32)


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def raises(kind, text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"{call} raised nothing")


def same(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got, wanted)
    as_bytes = [t.contiguous().view(-1).view(torch.uint8) for t in (got, wanted)]
    assert torch.equal(*as_bytes), f"{got} is not {wanted}"


def of_rank(number, dtype, *shape):
    """Small whole numbers, told apart by rank."""
    count = 1
    for length in shape:
        count *= length
    values = torch.arange(count, dtype=torch.float32).reshape(shape) % 3 + number + 1
    return values.to(dtype)


def both_ways(call):
    """The same call blocking, then asynchronous."""
    call(False)
    work = call(True)
    work.wait()
    assert work.is_completed() and work.is_success()


def strided(tensor):
    """The same values, with gaps between them."""
    wide = torch.zeros(*tensor.shape, 3, dtype=tensor.dtype)
    wide[..., 1] = tensor
    view = wide[..., 1]
    assert not view.is_contiguous() or view.numel() < 2
    return view


def check_all_reduce_of_all_dtypes():
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, *FLOAT8):
        for is_async in (False, True):
            x = of_rank(rank(), dtype, 2, 5)
            work = dist.all_reduce(x, async_op=is_async)
            if work is not None:
                work.wait()
            wanted = sum(of_rank(r, torch.float32, 2, 5) for r in range(size())).to(dtype)
            same(x, wanted)


def check_reduce_ops():
    inputs = [of_rank(r, torch.int32, 7) for r in range(size())]
    wanted = {
        ReduceOp.SUM: sum(inputs),
        ReduceOp.PRODUCT: functools.reduce(torch.mul, inputs),
        ReduceOp.MIN: functools.reduce(torch.minimum, inputs),
        ReduceOp.MAX: functools.reduce(torch.maximum, inputs),
        ReduceOp.BAND: functools.reduce(torch.bitwise_and, inputs),
        ReduceOp.BOR: functools.reduce(torch.bitwise_or, inputs),
        ReduceOp.BXOR: functools.reduce(torch.bitwise_xor, inputs),
        ReduceOp.AVG: (sum(inputs) / size()).trunc().to(torch.int32),
    }
    for op, result in wanted.items():
        x = inputs[rank()].clone()
        dist.all_reduce(x, op)
        same(x, result)


def check_bool_and_refused_ops():
    x = torch.tensor([rank() == 0, True, False])
    dist.all_reduce(x)
    same(x, torch.tensor([True, True, False]))
    x = torch.tensor([rank() == 0, True, False])
    dist.all_reduce(x, ReduceOp.PRODUCT)
    same(x, torch.tensor([False, True, False]))
    raises(RuntimeError, "all_reduce", dist.all_reduce, torch.ones(2), ReduceOp.BXOR)
    complex_ones = torch.ones(2, dtype=torch.complex64)
    raises(ValueError, "complex", dist.all_reduce, complex_ones, ReduceOp.MAX)
    for dtype in ONLY_MOVED:
        if dtype != torch.complex32:  # which c10d views as real
            x = torch.zeros(2, dtype=dtype)
            raises(RuntimeError, "cannot be reduced", dist.all_reduce, x)


def check_average_of_half_does_not_overflow():
    x = torch.full((3,), 40000.0, dtype=torch.float16)
    dist.all_reduce(x, ReduceOp.AVG)
    same(x, torch.full((3,), 40000.0, dtype=torch.float16))


def check_premul_sum():
    for factor in (0.5, torch.tensor([0.5])):
        op = dist._make_nccl_premul_sum(factor)
        x = torch.full((4,), 2.0 * (rank() + 1))
        given = strided(x)
        wanted = torch.full((4,), float(sum(range(1, size() + 1))))
        dist.all_reduce(x, op)
        same(x, wanted)
        dist.all_reduce(given, op)
        same(given, wanted)
        out = torch.empty(1)
        dist.reduce_scatter_tensor(out, torch.full((size(),), 2.0 * (rank() + 1)), op)
        same(out, wanted[:1])


def check_strides_and_lazy_conjugates():
    wanted = sum(of_rank(r, torch.float32, 3, 4) for r in range(size()))
    for view in (strided, lambda t: t.t().contiguous().t(), lambda t: t.flip(0).flip(0)):
        x = view(of_rank(rank(), torch.float32, 3, 4))
        both_ways_once = dist.all_reduce(x, async_op=True)
        both_ways_once.wait()
        same(x, wanted)
        x = view(of_rank(rank(), torch.float32, 3, 4))
        dist.all_reduce(x)
        same(x, wanted)
    x = strided(of_rank(rank(), torch.int64, 5))
    dist.broadcast(x, size() - 1)
    same(x, of_rank(size() - 1, torch.int64, 5))
    x = strided(of_rank(rank(), torch.int64, 5))
    dist.reduce(x, 1)
    sums = sum(of_rank(r, torch.int64, 5) for r in range(size()))
    same(x, sums if rank() == 1 else of_rank(rank(), torch.int64, 5))
    x = torch.complex(torch.ones(3), torch.full((3,), float(rank())))
    parts = [torch.empty(3, dtype=torch.complex64) for _ in range(size())]
    dist.group.WORLD.allgather([parts], [x.conj()]).wait()  # dist.all_gather refuses it
    for r, part in enumerate(parts):
        same(part, torch.complex(torch.ones(3), torch.full((3,), -float(r))))
    outputs = [strided(torch.zeros(2, 2)) for _ in range(size())]
    dist.all_gather(outputs, strided(of_rank(rank(), torch.float32, 2, 2)))
    for r, output in enumerate(outputs):
        same(output, of_rank(r, torch.float32, 2, 2))


def check_views_of_one_tensor_are_not_copied_wrong():
    whole = torch.zeros(size(), 4)
    dist.all_gather(list(whole.unbind(0)), of_rank(rank(), torch.float32, 4))
    same(whole, torch.stack([of_rank(r, torch.float32, 4) for r in range(size())]))
    backwards = torch.zeros(size(), 4)
    dist.all_gather(list(backwards.unbind(0))[::-1], of_rank(rank(), torch.float32, 4))
    same(backwards.flip(0), whole)


def check_gathers_of_all_dtypes():
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, *FLOAT8, *ONLY_MOVED, torch.bool):
        x = of_rank(rank(), torch.float32, 3).to(dtype)
        wanted = [of_rank(r, torch.float32, 3).to(dtype) for r in range(size())]
        parts = [torch.zeros(3, dtype=torch.float32).to(dtype) for _ in range(size())]
        dist.all_gather(parts, x)
        for part, right in zip(parts, wanted, strict=True):
            same(part, right)
        whole = torch.zeros(3 * size(), dtype=torch.float32).to(dtype)
        dist.all_gather_into_tensor(whole, x)
        for part, right in zip(whole.split(3), wanted, strict=True):
            same(part, right)


def check_gather_and_scatter():
    for is_async in (False, True):
        for root in range(size()):
            parts = [torch.zeros(2, 2) for _ in range(size())] if rank() == root else None
            work = dist.gather(of_rank(rank(), torch.float32, 2, 2), parts, root, async_op=is_async)
            if work is not None:
                work.wait()
            for r, part in enumerate(parts or []):
                same(part, of_rank(r, torch.float32, 2, 2))
            given = [of_rank(10 * r, torch.float32, 3) for r in range(size())]
            x = torch.zeros(3)
            work = dist.scatter(x, given if rank() == root else None, root, async_op=is_async)
            if work is not None:
                work.wait()
            same(x, of_rank(10 * rank(), torch.float32, 3))


def check_all_gather_of_uneven_tensors():
    parts = [torch.zeros(r, dtype=torch.int32) for r in range(size())]
    dist.all_gather(parts, torch.full((rank(),), rank(), dtype=torch.int32))
    for r, part in enumerate(parts):
        same(part, torch.full((r,), r, dtype=torch.int32))


def check_reduce_scatter():
    wanted = sum(of_rank(r, torch.float32, size(), 3) for r in range(size()))[rank()]

    def list_form(is_async):
        out = torch.zeros(3)
        parts = [row.clone() for row in of_rank(rank(), torch.float32, size(), 3)]
        work = dist.reduce_scatter(out, parts, async_op=is_async)
        if is_async:
            work.wait()
        same(out, wanted)
        return work

    def tensor_form(is_async):
        out = strided(torch.zeros(3))
        x = of_rank(rank(), torch.float32, size(), 3)
        work = dist.reduce_scatter_tensor(out, x, async_op=is_async)
        if is_async:
            work.wait()
        same(out, wanted)
        return work

    both_ways(list_form)
    both_ways(tensor_form)


def check_all_to_all():
    for dtype in (torch.float32, torch.int64, torch.float8_e8m0fnu):
        x = of_rank(rank(), torch.float32, size() * 2, 2).to(dtype)
        out = torch.zeros_like(x)
        dist.all_to_all_single(out, x)
        rows = [of_rank(r, torch.float32, size(), 2, 2)[rank()] for r in range(size())]
        same(out, torch.cat(rows).to(dtype))


def check_all_to_all_with_splits():
    # Rank r gives p + r rows to rank p; to one rank none where both are 0.
    gives = [p + rank() for p in range(size())]
    gets = [rank() + r for r in range(size())]
    x = strided(torch.full((sum(gives), 2), float(rank())))
    for is_async in (False, True):
        out = torch.zeros(sum(gets), 2)
        work = dist.all_to_all_single(out, x, gets, gives, async_op=is_async)
        if work is not None:
            work.wait()
        same(out, torch.cat([torch.full((rank() + r, 2), float(r)) for r in range(size())]))
    raises(RuntimeError, "split", dist.all_to_all_single, torch.ones(2), torch.ones(2), [1], [1])


def check_all_to_all_of_lists():
    for is_async in (False, True):
        given = [torch.full((p + rank(),), float(rank())) for p in range(size())]
        got = [torch.zeros(rank() + r) for r in range(size())]
        work = dist.all_to_all(got, given, async_op=is_async)
        if work is not None:
            work.wait()
        for r, tensor in enumerate(got):
            same(tensor, torch.full((rank() + r,), float(r)))


def check_empty_tensors():
    x = torch.zeros(0, 3)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather([torch.zeros(0) for _ in range(size())], torch.zeros(0))
    dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
    dist.reduce_scatter_tensor(torch.zeros(0), torch.zeros(0))


def check_messages():
    peer, source = (rank() + 1) % size(), (rank() - 1) % size()
    for count in (0, 1, 5000, 300_000):
        got = torch.zeros(count)
        works = [dist.isend(torch.full((count,), float(rank())), peer), dist.irecv(got, source)]
        for work in works:
            work.wait()
        same(got, torch.full((count,), float(source)))


def check_messages_by_tag():
    if rank() == 0:
        for tag in (7, 3, 5):
            dist.send(torch.full((2,), float(tag)), 1, tag=tag)
    if rank() == 1:
        for tag in (3, 5, 7):
            got = strided(torch.zeros(2))
            assert dist.recv(got, 0, tag=tag) == 0
            same(got, torch.full((2,), float(tag)))
    if rank() < 2:
        raises(RuntimeError, "tag", dist.send, torch.ones(1), 1 - rank(), tag=-1)


def check_messages_from_anywhere():
    if rank() == 0:
        seen = []
        for _ in range(size() - 1):
            got = torch.zeros(1)
            source = dist.recv(got)
            assert got.item() == source
            seen.append(source)
        assert sorted(seen) == list(range(1, size()))
    else:
        dist.send(torch.full((1,), float(rank())), 0)


def check_batches_of_messages():
    got = [torch.zeros(3) for _ in range(size())]
    operations = []
    for peer in range(size()):
        if peer != rank():
            operations.append(dist.P2POp(dist.irecv, got[peer], peer))
            operations.append(dist.P2POp(dist.isend, torch.full((3,), float(rank())), peer))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for peer in range(size()):
        if peer != rank():
            same(got[peer], torch.full((3,), float(peer)))


def check_objects():
    objects = [None] * size()
    dist.all_gather_object(objects, {"rank": rank(), "text": "x" * rank()})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size())]
    objects = [f"from {rank()}", rank()]
    dist.broadcast_object_list(objects, src=1)
    assert objects == ["from 1", 1]
    gathered = [None] * size() if rank() == 2 else None
    dist.gather_object(rank(), gathered, dst=2)
    assert gathered is None or gathered == list(range(size()))
    got = [None]
    dist.scatter_object_list(got, [f"to {r}" for r in range(size())] if rank() == 0 else None, 0)
    assert got == [f"to {rank()}"]
    if rank() == 0:
        dist.send_object_list(["a", 1], dst=1)
    if rank() == 1:
        objects = [None, None]
        dist.recv_object_list(objects, src=0)
        assert objects == ["a", 1]


def check_coalesced_collectives():
    tensors = [of_rank(rank(), torch.float32, n) for n in (1, 4, 0, 9)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for n, tensor in zip((1, 4, 0, 9), tensors, strict=True):
        same(tensor, sum(of_rank(r, torch.float32, n) for r in range(size())))
    outputs = [torch.zeros(size() * 2), strided(torch.zeros(size() * 3))]
    with dist._coalescing_manager():
        for output, n in zip(outputs, (2, 3), strict=True):
            dist.all_gather_into_tensor(output, of_rank(rank(), torch.float32, n))
    for output, n in zip(outputs, (2, 3), strict=True):
        same(output, torch.cat([of_rank(r, torch.float32, n) for r in range(size())]))
    outputs = [torch.zeros(1), strided(torch.zeros(2))]
    with dist._coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_tensor(output, torch.ones(size() * output.numel()))
    for output in outputs:
        same(output, torch.full(output.shape, float(size())))


def check_coalescing_of_any_operations():
    cpu = torch.device("cpu")
    got = torch.zeros(100_000)
    x = torch.ones(3)
    with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
        # Blocking by themselves, none is waited for here: all ranks send first.
        dist.send(torch.full((100_000,), float(rank())), (rank() + 1) % size())
        dist.recv(got, (rank() - 1) % size())
        dist.broadcast(x, 0)
    manager.wait()
    same(got, torch.full((100_000,), float((rank() - 1) % size())))
    group = dist.group.WORLD
    tensors = [torch.ones(2), torch.ones(3)]
    group._start_coalescing(cpu)
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    future = group._end_coalescing(cpu).get_future()
    for result, n in zip(future.wait(), (2, 3), strict=True):
        same(result, torch.full((n,), float(size())))


def check_sparse():
    def sparse(number, is_empty=False):
        indices = torch.tensor([[0, number + 1, 0], [1, 0, 1]])
        values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        if is_empty:
            indices, values = indices[:, :0], values[:0]
        return torch.sparse_coo_tensor(indices, values, (6, 2, 2))

    wanted = sum(sparse(r).to_dense() for r in range(1, size()))
    for is_async in (False, True):
        x = sparse(rank(), is_empty=rank() == 0)
        work = dist.all_reduce(x, async_op=is_async)
        if is_async:
            (result,) = work.get_future().wait()
            same(result.to_dense(), wanted)
            work.wait()
        same(x.to_dense(), wanted)
    works, tensors = [], [sparse(rank()) for _ in range(8)]
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
        dist.all_reduce(torch.ones(1))
    for work, tensor in zip(works, tensors, strict=True):
        work.wait()
        same(tensor.to_dense(), sum(sparse(r).to_dense() for r in range(size())))
    x = sparse(rank())
    dist.all_reduce(x, ReduceOp.AVG)
    assert torch.allclose(x.to_dense(), sum(sparse(r).to_dense() for r in range(size())) / size())
    raises(RuntimeError, "SUM and AVG", dist.all_reduce, sparse(rank()), ReduceOp.MAX)


def check_futures():
    x = torch.full((2,), float(rank()))
    work = dist.all_reduce(x, async_op=True)

    def of_future(future):
        # A callback may call operations, and wait for them.
        y = future.value()[0] * 2
        dist.all_reduce(y)
        return y

    then = work.get_future().then(of_future)
    work.wait()
    assert work.get_future().done(), "the future is done when wait() returns"
    total = float(sum(range(size())))
    same(then.wait(), torch.full((2,), 2 * total * size()))
    assert work.result()[0] is not None
    same(work.result()[0], torch.full((2,), total))
    futures = [
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: f.value()[0] + 1)
        for _ in range(20)
    ]
    for future in futures:
        same(future.wait(), torch.full((1,), size() + 1.0))


def check_dropped_works_keep_their_tensors():
    for _ in range(50):
        dist.all_reduce(torch.ones(2000), async_op=True)
        dist.all_gather([torch.ones(10) for _ in range(size())], torch.ones(10), async_op=True)
    x = torch.ones(1)
    dist.all_reduce(x)
    same(x, torch.full((1,), float(size())))


def check_gradients_are_not_recorded():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        given = x.expand(2, 3)
        dist.all_reduce(strided(given), async_op=True).wait()
    leaf = strided(torch.ones(2)).requires_grad_()
    dist.all_reduce(leaf.detach())
    assert leaf.grad_fn is None


def check_profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 5))
        dist.all_reduce(torch.ones(7), async_op=True).wait()
        dist.barrier()
    events = {(e.name, str(e.input_shapes)) for e in profiler.events()}
    assert ("ciuic:all_reduce", "[[3, 5]]") in events, events
    assert ("ciuic:all_reduce", "[[7]]") in events, events
    assert any(name == "ciuic:barrier" for name, _ in events), events


def check_sequence_numbers():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 1
    assert backend.name() == "ciuic"


def check_what_is_refused_sends_nothing():
    raises(RuntimeError, "all_gather", dist.all_gather, [torch.ones(2)], torch.ones(2))
    outputs = [torch.ones(3) for _ in range(size())]
    raises(RuntimeError, "size", dist.all_gather, outputs, torch.ones(2))
    raises(RuntimeError, "size", dist.all_gather_into_tensor, torch.ones(2), torch.ones(2))
    raises(RuntimeError, "size", dist.reduce_scatter_tensor, torch.ones(2), torch.ones(2))
    group = dist.group.WORLD
    raises(RuntimeError, "one tensor", group.allreduce, [torch.ones(1), torch.ones(1)])
    dist.barrier()
    dist.barrier(async_op=True).wait()
