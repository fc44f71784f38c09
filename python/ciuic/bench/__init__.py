# SPDX-License-Identifier: Apache-2.0
"""``ciuic bench``: measures collective operations beside other implementations, in one run.

Each implementation has a group of processes of its own. While one is measured, the processes of
the others are stopped (SIGSTOP). Rounds of all implementations and sizes are interleaved in random
order, so that what drifts on the machine drifts for all. Results are checked before anything is
timed.

=====================  ================================================================
``options.py``         what is measured: sizes, dtype, op, implementations
``measure.py``         the order of checks and rounds; start here
``groups.py``          the processes of one implementation: start, stop, continue, ask, end
``ranks.py``           one such process, started by us
``mpi_job.py``         such processes, started by an MPI's ``mpiexec``
``worker.py``          what one of these processes does
``implementations.py`` how each implementation is called
``report.py``          medians, JSON, table
``command.py``         the command line
=====================  ================================================================
"""
