# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V3 trained from scratch over Ciuic: a file a concept; train.py puts them together."""
