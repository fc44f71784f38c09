# SPDX-License-Identifier: Apache-2.0
"""What stands on process groups, against one process that does the same; see conftest.py."""

import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def new_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )


def batch_of(step: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + number)
    return torch.randn(6, 8, generator=generator)


def train(model, inputs, steps=3):
    """Some steps of SGD on the mean square of the outputs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs(step)).square().mean().backward()
        optimizer.step()


def reference():
    """The model as one process trains it on the batches of all ranks."""
    model = new_model()
    train(model, lambda step: torch.cat([batch_of(step, r) for r in range(size())]))
    return model


def assert_close(model, wanted, tolerance=1e-6):
    for got, right in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.allclose(got, right, atol=tolerance), (got - right).abs().max()


def my_batch(step):
    return batch_of(step, rank())


def check_ddp():
    model = DistributedDataParallel(new_model())
    train(model, my_batch)
    assert_close(model.module, reference())


def check_ddp_with_small_buckets_and_unused_parameters():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = new_model(), nn.Linear(3, 3)

        def forward(self, x):
            return self.used(x)

    model = DistributedDataParallel(
        Partly(), bucket_cap_mb=0.0005, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    train(model, my_batch)
    assert_close(model.module.used, reference())


def check_ddp_with_builtin_hooks():
    from torch.distributed import BuiltinCommHookType

    for hook, tolerance in (
        (BuiltinCommHookType.ALLREDUCE, 1e-6),
        (BuiltinCommHookType.FP16_COMPRESS, 1e-3),
    ):
        model = DistributedDataParallel(new_model())
        model._register_builtin_comm_hook(hook)
        train(model, my_batch)
        assert_close(model.module, reference(), tolerance)


def check_ddp_with_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    model = DistributedDataParallel(new_model())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model, my_batch)
    assert_close(model.module, reference(), 1e-3)

    model = DistributedDataParallel(new_model())
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=8, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, my_batch, steps=6)
    for parameter in model.parameters():
        parts = [torch.empty_like(parameter) for _ in range(size())]
        dist.all_gather(parts, parameter.detach())
        assert all(torch.equal(part, parts[0]) for part in parts)
        assert parameter.isfinite().all()


def check_ddp_with_sparse_gradients():
    model = DistributedDataParallel(nn.Embedding(10, 3, sparse=True))
    model.module.weight.data.fill_(1.0)
    model(torch.tensor([rank(), 5])).sum().backward()
    gradient = model.module.weight.grad.to_dense()
    wanted = torch.zeros(10, 3)
    wanted[:2], wanted[5] = 0.5, 1.0
    assert torch.equal(gradient, wanted), gradient


def check_join_of_uneven_inputs():
    model = DistributedDataParallel(new_model())
    count = 0
    with Join([model]):
        for step in range(2 + 2 * rank()):
            model(my_batch(step)).square().mean().backward()
            count += 1
    assert count == 2 + 2 * rank()


def check_zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(new_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(my_batch(step)).square().mean().backward()
        optimizer.step()
    assert_close(model.module, reference())


def check_fsdp2():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for policy, tolerance in (
        (MixedPrecisionPolicy(), 1e-6),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), 2e-2),
    ):
        model = new_model()
        mesh = init_device_mesh("cpu", (size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        train(model, my_batch)
        for got, right in zip(model.parameters(), reference().parameters(), strict=True):
            assert torch.allclose(got.full_tensor(), right, atol=tolerance)


def check_fsdp2_in_shared_tensors():
    from torch._C._distributed_c10d import Backend
    from torch.distributed.fsdp import fully_shard

    allocated = []
    allocate = Backend.allocate_tensor

    def counted(backend, *arguments, **named):
        allocated.append(allocate(backend, *arguments, **named))
        return allocated[-1]

    model = new_model()
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (size(),)))
        layer.set_allocate_memory_from_process_group_for_comm(True)
    Backend.allocate_tensor = counted
    try:
        train(model, my_batch)
    finally:
        Backend.allocate_tensor = allocate
    # An all_gather's for each layer, forward and backward, and a reduce_scatter's two.
    assert len(allocated) >= 3 * 3 * 3, len(allocated)
    for got, right in zip(model.parameters(), reference().parameters(), strict=True):
        assert torch.allclose(got.full_tensor(), right, atol=1e-6)


def check_dtensor():
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size(),))
    whole = torch.arange(24.0).reshape(6, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])  # an all_to_all
    assert torch.equal(columns.to_local(), whole.chunk(size(), 1)[rank()])
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    product = columns @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    assert product.placements[0] == Partial()
    assert torch.equal(product.full_tensor(), whole @ whole.t())
    assert torch.equal(product.redistribute(mesh, [Shard(0)]).full_tensor(), whole @ whole.t())


def check_tensor_parallel():
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))

    alone, block = Block(), Block()
    mesh = init_device_mesh("cpu", (size(),))
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train(block, lambda step: batch_of(step, 0))
    train(alone, lambda step: batch_of(step, 0))
    for got, right in zip(block.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(got.full_tensor(), right, atol=1e-6)


def check_checkpoints():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.fsdp import fully_shard

    folder = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder)

    def sharded(seed):
        torch.manual_seed(seed)
        model = new_model() if seed == 1 else nn.Sequential(*(nn.Linear(4, 4) for _ in range(2)))
        fully_shard(model, mesh=init_device_mesh("cpu", (size(),)))
        return model

    model = sharded(1)
    checkpoint.save(model.state_dict(), checkpoint_id=os.path.join(folder[0], "now"))
    later = checkpoint.async_save(
        model.state_dict(), checkpoint_id=os.path.join(folder[0], "later")
    )
    later.result(timeout=60)
    saved = [p.full_tensor().clone() for p in model.parameters()]
    for name in ("now", "later"):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        state = model.state_dict()
        checkpoint.load(state, checkpoint_id=os.path.join(folder[0], name))
        model.load_state_dict(state)
        for parameter, right in zip(model.parameters(), saved, strict=True):
            assert torch.equal(parameter.full_tensor(), right)


def check_pipelining():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for schedule_type in (ScheduleGPipe, Schedule1F1B):
        alone = new_model()
        layers = list(copy.deepcopy(alone))
        mine = nn.Sequential(*(layers[:2] if rank() == 0 else layers[2:]))
        stage = PipelineStage(mine, rank(), size(), torch.device("cpu"))
        losses = []
        schedule = schedule_type(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
        x, target = torch.randn(8, 8, generator=torch.Generator().manual_seed(3)), torch.ones(8, 4)
        if rank() == 0:
            schedule.step(x)
        else:
            schedule.step(target=target, losses=losses)
        (alone(x) - target).square().mean().backward()
        rights = list(alone)[:2] if rank() == 0 else list(alone)[2:]
        for got, right in zip(mine.parameters(), nn.Sequential(*rights).parameters(), strict=True):
            assert torch.allclose(got.grad, right.grad, atol=1e-6)


def check_functional_collectives_compiled():
    def run(x):
        y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = functional.all_gather_tensor(y + 1, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(z, "avg", 0, dist.group.WORLD) - 1

    x = torch.full((4,), float(rank() + 1))
    wanted = torch.full((4,), 2.0 * sum(range(1, size() + 1)))
    assert torch.equal(run(x), wanted)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), wanted)


def check_autograd_of_functional_collectives():
    x = torch.ones(size() * 2, requires_grad=True)
    y = functional.all_to_all_single_autograd(x, None, None, dist.group.WORLD)
    (y * (rank() + 1)).sum().backward()
    assert torch.equal(x.grad, torch.arange(1.0, size() + 1).repeat_interleave(2))


def check_rpc_beside_it():
    import torch.distributed.rpc as rpc

    path = [tempfile.mktemp() if rank() == 0 else None]
    dist.broadcast_object_list(path)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{path[0]}", _transports=["uv"], rpc_timeout=60
    )
    rpc.init_rpc(f"worker{rank()}", rank=rank(), world_size=size(), rpc_backend_options=options)
    other = f"worker{(rank() + 1) % size()}"
    pending = rpc.rpc_async(other, torch.add, (torch.ones(2), 1))
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size()
    assert torch.equal(pending.wait(), torch.full((2,), 2.0))
    rpc.shutdown()
