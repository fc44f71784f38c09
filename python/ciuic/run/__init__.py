# SPDX-License-Identifier: Apache-2.0
"""Starting ranks on this machine: ``ciuic run`` and ``ciuic.spawn``. Neither imports torch."""
