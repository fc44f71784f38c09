# SPDX-License-Identifier: Apache-2.0
"""Under ``ciuic run``: nothing is initialised behind a program's back, and nothing imported."""

import sys

import ciuic

assert "torch" not in sys.modules
assert "numpy" not in sys.modules
import torch  # noqa: E402

assert not torch.distributed.is_initialized()
# The port that the launcher reserved is there for it.
torch.distributed.init_process_group("gloo")
x = torch.ones(1)
torch.distributed.all_reduce(x)
assert int(x) == torch.distributed.get_world_size()
torch.distributed.destroy_process_group()
assert ciuic.version()
