#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets of a build for some seconds each, from the kept corpus on.

    fuzz/run.py --build build/fuzz --seconds 10 [TARGET ...]

prints a line a target and the sum, and exits with 1 where one found something: the input lies in
BUILD/findings, and `BUILD/fuzz/fuzz_TARGET FILE` shows it again. With --collect the corpus is made
anew: of seeds that the real encoders write, the kept inputs, and what was found in these seconds;
only those stay that add coverage.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
DICTIONARIES = HERE / "dictionaries"

# One fault of a target must not take the machine with it, nor wait for ever.
MEMORY_MB = 1024
ALLOCATION_MB = 20  # at once: no length is believed beyond what comes with it
ONE_INPUT_S = 20
MAX_INPUT_BYTES = 4096  # of what is kept; the whole corpus stays below a megabyte
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class Outcome:
    target: str
    executions: int
    coverage: int
    corpus: int
    ok: bool
    log: Path


def targets_of(build: Path) -> list[str]:
    programs = sorted((build / "fuzz").glob("fuzz_*"))
    return [
        program.name.removeprefix("fuzz_")
        for program in programs
        if program.is_file() and os.access(program, os.X_OK) and program.name != "fuzz_seeds"
    ]


def _program(build: Path, target: str) -> str:
    return str(build / "fuzz" / f"fuzz_{target}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name[:6] != "CIUIC_"} | SANITIZERS


def _last_number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def fuzz(build: Path, target: str, seconds: int) -> Outcome:
    """Runs one target; what is new stays in BUILD/found/TARGET for the next time."""
    found = build / "found" / target
    findings = build / "findings"
    kept = CORPUS / target
    for folder in (found, findings, build / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    log = build / "logs" / f"{target}.log"
    command = [
        _program(build, target),
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-malloc_limit_mb={ALLOCATION_MB}",
        f"-timeout={ONE_INPUT_S}",
        f"-artifact_prefix={findings}/{target}-",
        "-print_final_stats=1",
        "-reload=0",
        str(found),
    ]
    if kept.is_dir():
        command.append(str(kept))
    dictionary = DICTIONARIES / f"{target}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env=_environment(), check=False)
    text = log.read_text(errors="replace")
    return Outcome(
        target,
        _last_number(r"stat::number_of_executed_units: *(\d+)", text),
        _last_number(r"cov: (\d+)", text),
        _last_number(r"corp: (\d+)", text),
        done.returncode == 0,
        log,
    )


def collect(build: Path, target: str) -> int:
    """Keeps the smallest set of inputs that covers all that any covers. Returns their number."""
    seeds = build / "seeds" / target
    merged = build / "merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    sources = [CORPUS / target, seeds, build / "found" / target]
    command = [
        _program(build, target),
        "-set_cover_merge=1",
        "-use_counters=0",  # each edge once, however often: a tenth of the files
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={ONE_INPUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        str(merged),
        *(str(source) for source in sources if source.is_dir()),
    ]
    subprocess.run(command, check=True, env=_environment(), capture_output=True)
    kept = CORPUS / target
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(merged, kept)
    return len(list(kept.iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--collect", action="store_true", help="make the kept corpus anew")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    build: Path = options.build.resolve()
    targets = options.targets or targets_of(build)
    if not targets:
        print(f"no fuzz targets in {build}/fuzz", file=sys.stderr)
        return 2
    if options.collect:
        shutil.rmtree(build / "seeds", ignore_errors=True)
        subprocess.run([str(build / "fuzz" / "fuzz_seeds"), str(build / "seeds")], check=True)
        for target in targets:
            shutil.copytree(build / "seeds" / target, build / "found" / target, dirs_exist_ok=True)
    failed = executions = 0
    print(f"{'target':<20} {'executions':>12} {'coverage':>9} {'corpus':>7}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda target: fuzz(build, target, options.seconds), targets):
            executions += outcome.executions
            failed += not outcome.ok
            print(
                f"{outcome.target:<20} {outcome.executions:>12,} {outcome.coverage:>9,} "
                f"{outcome.corpus:>7,}" + ("" if outcome.ok else f"   FAILED, see {outcome.log}"),
                flush=True,
            )
    print(f"targets {len(targets)} executions {executions} failed {failed}")
    if options.collect and not failed:
        for target in targets:
            print(f"kept {collect(build, target)} inputs of {target}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
