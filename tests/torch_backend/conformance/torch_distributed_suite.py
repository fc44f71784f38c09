# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own distributed test suite, run on any CPU backend.

The suite, ``torch.testing._internal.distributed.distributed_test``, ships in the torch wheel. It
asks ``BACKEND == "gloo"`` in many places; here the name of our backend also equals "gloo", which
opens those gates. Ranks are forked (about 0.3 s a test) unless START=spawn.

    BACKEND     name under test, such as gloo or ciuic
    PLUGIN      module whose import registers BACKEND; empty for gloo
    ALIAS       gloo, to open the gates for another backend
    WORLD_SIZE  ranks, 2 or 8
    TEMP_DIR    a folder that holds an empty folder ``barrier``; run.sh makes it
"""

import importlib
import importlib.util
import os
import sys
import types

import torch
import torch.testing._internal.common_distributed as common_distributed


class Alias(str):
    """A backend's name that also equals ALIAS."""

    alias = os.environ.get("ALIAS", "")

    def __eq__(self, other):
        if str.__eq__(self, other) is True:
            return True
        return bool(self.alias) and isinstance(other, str) and str.__eq__(other, self.alias)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self.alias or str(self))


BACKEND = os.environ["BACKEND"]
if os.environ.get("PLUGIN"):
    plugin = importlib.import_module(os.environ["PLUGIN"])
    for feature in ("ddp", "plugin"):
        common_distributed.DistTestCases.backend_feature[feature].add(BACKEND)
    # torch's own asks the group for the name gloo.
    torch.distributed.monitored_barrier = plugin.monitored_barrier

source = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test").origin
with open(source) as file:
    text = file.read()
asks_for_backend = 'BACKEND = os.environ["BACKEND"]\n'
assert text.count(asks_for_backend) == 1, "the suite has changed: look where it reads BACKEND"
opened = f'BACKEND = __import__({__name__!r}).Alias(os.environ["BACKEND"])\n'
suite = types.ModuleType("distributed_test_patched")
suite.__file__ = source
sys.modules["distributed_test_patched"] = suite
exec(compile(text.replace(asks_for_backend, opened), source, "exec"), suite.__dict__)


class TestDistributed(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        if os.environ.get("START", "fork") == "fork":
            self._start_processes(torch.multiprocessing.get_context("fork").Process)
        else:
            self._spawn_processes()
