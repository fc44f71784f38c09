# SPDX-License-Identifier: Apache-2.0
"""Takes secrets, users' names and home directories out of what goes into a report.

A secret is known by its place (``NAME_TOKEN=...``, ``://user:password@host``), by its looks (long
hex numbers, well-known prefixes), or because it is the value of a variable with such a name in this
process's environment; the last kind is looked for everywhere, also where it was cut off. What is
doubtful is taken out.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

HIDDEN = "(hidden)"
USER = "(user)"

_LEAST_SECRET = 6  # letters; shorter ones would be found in everything
_LEAST_CUT = 6  # of a secret's beginning, at the end of a text
_NAMES = "SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|KEY|CREDENTIAL"
_IS_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_NOT_PERSONAL = {"root", "nobody"}

_RULES = [
    # scheme://user:password@host, to the last @, since a password may have some, too
    re.compile(r"[A-Za-z][\w+.-]*://([^\s\"'<>]*)@"),
    # NAME_TOKEN=value, "api_key": "value", --password value
    re.compile(
        rf"(?:[\w.-]*(?:{_NAMES})[\w.-]*)[\"']?\s*[=:]\s*"
        r"(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'&,;)]+))",
        re.IGNORECASE,
    ),
    re.compile(rf"--[\w-]*(?:{_NAMES})[\w-]*\s+(\S+)", re.IGNORECASE),
    re.compile(r"\b(?:bearer|basic)\s+([\w.~+/=-]{8,})", re.IGNORECASE),
    re.compile(r"\b((?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA)[\w-]{8,})"),
    re.compile(r"\b(eyJ[\w-]+\.[\w-]+\.[\w-]+)"),  # a JSON web token
    re.compile(r"(?<![\w])([0-9a-fA-F]{32,})(?![\w])"),  # secrets of jobs, digests
]
_HOMES = re.compile(r"/(?:home|Users)/([^/\s:\"']+)")
_TEXT = re.compile(rb"[\x20-\x7e\x80-\xff]{4,}")

_Span = tuple[int, int, str]


def is_secret_name(name: str) -> bool:
    """Whether a variable's value is nobody's business."""
    return _IS_SECRET_NAME.search(name) is not None


class Stripper:
    """Knows what must not be seen.

    Args:
        environment: Of this process. Secrets in it are looked for; nothing of it is kept else.
        homes: Home directories.
        users: Names of users.
    """

    def __init__(
        self, environment: Mapping[str, str], homes: Iterable[str], users: Iterable[str]
    ) -> None:
        secrets = {
            value
            for name, value in environment.items()
            if is_secret_name(name) and len(value) >= _LEAST_SECRET
        }
        secrets |= set(_user_infos(environment.values()))
        self._secrets = sorted(secrets | {quote(each, safe="") for each in secrets}, key=len)
        self._homes = sorted({home.rstrip("/") for home in homes} - {""}, key=len)
        self._users = sorted(set(users) - _NOT_PERSONAL - {""})
        words = [rf"(?<!\w){re.escape(user)}(?!\w)" for user in self._users]
        self._user_words = re.compile("|".join(words)) if words else None

    @classmethod
    def of_this_process(cls, pids: Iterable[int] = ()) -> Stripper:
        """Knows what the user and the environment of this process say, and the environments of
        others whose traces are taken."""
        homes, users = [os.path.expanduser("~")], []
        for name in ("HOME", "SUDO_HOME"):
            homes.append(os.environ.get(name, ""))
        for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME"):
            users.append(os.environ.get(name, ""))
        with contextlib.suppress(KeyError):  # a container's number may have no name
            entry = pwd.getpwuid(os.getuid())
            homes.append(entry.pw_dir)
            users += [entry.pw_name, entry.pw_gecos.split(",")[0]]
        environment = dict(os.environ)
        for pid in pids:
            for name, value in _environment_of(pid):
                environment[f"{pid} {name}"] = value  # each knows secrets of its own
        return cls(environment, homes, users)

    def text(self, text: str) -> str:
        """``text``, with words in the place of what was taken out."""
        parts, at = [], 0
        for begin, end, instead in self._spans(text):
            parts += [text[at:begin], instead]
            at = end
        return "".join([*parts, text[at:]])

    def data(self, data: bytes) -> bytes:
        """Bytes with text in them, such as a dump: stars in the place of what was taken out, as
        many, so that all else stays where it is."""

        def masked(match: re.Match[bytes]) -> bytes:
            run = match.group().decode("latin-1")
            letters = list(run)
            for begin, end, _ in self._spans(run):
                letters[begin:end] = "*" * (end - begin)
            return "".join(letters).encode("latin-1")

        for secret in self._secrets:  # others than ASCII, which are cut into runs of text below
            known = secret.encode("utf-8", "surrogateescape")
            data = data.replace(known, b"*" * len(known))
        return _TEXT.sub(masked, data)

    def value(self, value: Any) -> Any:
        """What JSON is made of: every text in it, and what stands under a secret's name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                key: HIDDEN
                if is_secret_name(str(key)) and isinstance(each, str) and each
                else self.value(each)
                for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return value

    def finds_in(self, data: bytes) -> bool:
        """Whether a secret that is known is still there, also as JSON writes it: the last look."""
        for secret in self._secrets:
            written = (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
            )
            if any(each.encode("utf-8", "surrogateescape") in data for each in written):
                return True
        return False

    def _spans(self, text: str) -> list[_Span]:
        """What to take out, in order, without overlaps."""
        found = sorted(self._all_spans(text))
        spans: list[_Span] = []
        for begin, end, instead in found:
            if spans and begin < spans[-1][1]:
                last = spans[-1]
                word = HIDDEN if HIDDEN in (instead, last[2]) else last[2]
                spans[-1] = (last[0], max(end, last[1]), word)
            elif end > begin:
                spans.append((begin, end, instead))
        return spans

    def _all_spans(self, text: str) -> Iterator[_Span]:
        for secret in self._secrets:
            at = text.find(secret)
            while at >= 0:
                yield at, at + len(secret), HIDDEN
                at = text.find(secret, at + 1)
            for cut in range(min(len(secret) - 1, len(text)), _LEAST_CUT - 1, -1):
                if text.endswith(secret[:cut]):
                    yield len(text) - cut, len(text), HIDDEN
                    break
        for rule in _RULES:
            for match in rule.finditer(text):
                group = match.lastindex or 0
                yield match.start(group), match.end(group), HIDDEN
        for home in self._homes:
            for match in re.finditer(re.escape(home) + r"(?![\w.-])", text):
                yield match.start(), match.end(), "~"
        for match in _HOMES.finditer(text):
            yield match.start(1), match.end(1), USER
        if self._user_words is not None:
            for match in self._user_words.finditer(text):
                yield match.start(), match.end(), USER


def _environment_of(pid: int) -> Iterator[tuple[str, str]]:
    """What a process was started with; nothing, where that may not be read."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape")
        for line in text.split("\0"):
            name, _, value = line.partition("=")
            yield name, value


def _user_infos(values: Iterable[str]) -> Iterator[str]:
    """What stands before the @ of URLs, and its password alone."""
    for value in values:
        for match in _RULES[0].finditer(value):
            for part in (match.group(1), match.group(1).partition(":")[2]):
                if len(part) >= _LEAST_SECRET:
                    yield part
