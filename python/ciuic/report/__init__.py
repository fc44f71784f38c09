# SPDX-License-Identifier: Apache-2.0
"""``ciuic report``: what somebody else needs to understand a problem, in one archive.

===========  =====================================================================================
``facts``    what is taken of this machine and its environment, and nothing else
``traces``   flight recorders, as dumps and in words
``strip``    takes secrets and names of users out of text, and out of dumps
``archive``  the members, a last look for secrets, and the file
===========  =====================================================================================
"""
