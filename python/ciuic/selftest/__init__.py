# SPDX-License-Identifier: Apache-2.0
"""``ciuic selftest``: every operation on every dtype over every transport of this machine.

=================  ===============================================================================
``cases``          the list of checks, their names, and which of them ``--only`` means
``elements``       each dtype's elements as Python's numbers, and back, rounded as the core does
``reference``      what the ranks give, and the right results, by nothing but Python
``memory``         arrays of any dtype without NumPy, and NumPy's where it is there
``operations``     makes the calls of a case, and compares
``rank``           the program of one rank
``routes``         the transports, and why this machine lacks some
``starter``        starts the ranks of a route, and gathers what they report
``machine``        the checks that need no ranks
``summary``        counts, JSON, table
=================  ===============================================================================
"""
