#!/usr/bin/env bash
# format.sh - every C, C++ and CUDA source is as clang-format-22 leaves it, every shell script passes shellcheck.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-22 --dry-run -Werror
git ls-files | xargs -d '\n' grep -lE '^#!.*\bbash' | xargs shellcheck -x
