# SPDX-License-Identifier: Apache-2.0
"""What flight recorders say: ``ciuic trace``.

One recording a process; together they tell which rank is behind, and on what. The bytes are read by
the core (src/trace/parse.h). Nothing here imports torch.
"""
