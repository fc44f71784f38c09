# SPDX-License-Identifier: Apache-2.0
"""Serves a store at the address given, prints where and the secret, and stays until it is ended."""

import os
import sys
import threading

from ciuic import _native

secret = os.urandom(32).hex()
server = _native.StoreServer(sys.argv[1], secret)
print(server.url, secret, flush=True)
threading.Event().wait()
