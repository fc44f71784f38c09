# SPDX-License-Identifier: Apache-2.0
"""The command line: parses, and hands over to the folder of the tool."""
