# SPDX-License-Identifier: Apache-2.0
"""Of two ranks by NCCL the second does not call the second operation. Both end with the error."""

import os
import time

import cuda_arrays
import numpy
import on_device
from ciuic import CiuicContext
from cuda_arrays import CudaArray


def main() -> None:
    cuda = on_device.Cuda(int(os.environ["RANK"]))
    cuda_arrays.work_in(cuda)
    with CiuicContext(backend="nccl", timeout_s=60) as ctx:
        x = CudaArray.of(cuda, numpy.ones(1000, dtype=numpy.float32))
        ctx.all_reduce(x)
        assert (x.numpy() == 2).all()
        if ctx.rank == 0:
            ctx.all_reduce(x, timeout_s=2)  # for which the host does not wait
        while (error := ctx.error) is None:
            time.sleep(0.01)
        raise error


main()
