# SPDX-License-Identifier: Apache-2.0
"""Ray Train: four workers of a Ray cluster, each a rank.

    python examples/launch/ray_train.py

To change: ``ScalingConfig``, as your cluster has machines (``resources_per_worker``, ``use_gpu``),
and ``train``. Ray starts torch.distributed in each worker before it calls ``train``, and sets RANK,
WORLD_SIZE and LOCAL_RANK, so that the ranks meet without more being said. It needs ``ray[train]``.
"""

import numpy
from ciuic import CiuicContext, all_reduce


def train() -> None:
    """What each worker does."""
    with CiuicContext() as context:
        x = numpy.array([1.0, 2.0, 3.0]) * (context.rank + 1)
        all_reduce(x, op=CiuicContext.SUM, context=context)
        print(f"rank {context.rank} of {context.world_size}: {x.tolist()}")


if __name__ == "__main__":
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=4),
    ).fit()
