# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests in Python."""

import signal

# A shell's background job is started with Ctrl-C ignored, which our children would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
