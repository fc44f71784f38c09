#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [--check]: formats all code, C++ by clang-format and Python by ruff; or names what is not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${BIN:-.venv/bin}

# What git tracks or would track; a file removed but not yet committed is not there to format.
files() {
  local file
  git ls-files -z --cached --others --exclude-standard -- "$@" | while IFS= read -r -d '' file; do
    [ -f "$file" ] && printf '%s\0' "$file"
  done || true
}

case ${1:-} in
  --check)
    failed=0
    files '*.h' '*.cc' | xargs -0r "$bin/clang-format" --dry-run -Werror || failed=1
    "$bin/ruff" format --check . || failed=1
    "$bin/ruff" check . || failed=1
    exit $failed
    ;;
  '')
    files '*.h' '*.cc' | xargs -0r "$bin/clang-format" -i
    "$bin/ruff" format .
    "$bin/ruff" check --fix .
    ;;
  *)
    echo "usage: format.sh [--check]" >&2
    exit 2
    ;;
esac
