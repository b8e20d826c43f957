# common.sh - what tools/demo, tools/check and tools/check-gpu share; sourced, not run.
# shellcheck shell=bash disable=SC2034  # variables are for the scripts that source this

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${MOE_BUILD_DIR:-$root/build}
python=$build/venv/bin/python
log=$build/step.log
mkdir -p "$build"

# Debian packages that the demo needs; the checks add theirs.
packages=(gcc g++ binutils cmake ninja-build ccache python3 python3-venv libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools)

# parse_options USAGE ALLOWED OPERANDS [ARGUMENT...]: --help prints the usage; an option that is not in ALLOWED (a list between blanks), or more
# than OPERANDS arguments that are no options, end the script.
parse_options() {
  local usage=$1 allowed=" $2 " operands=$3 argument
  shift 3
  for argument in "$@"; do
    case $argument in
    --help) echo "$usage" && exit 0 ;;
    -*) [[ $allowed == *" $argument "* ]] || { echo "$(basename "$0"): unknown option '$argument'; try --help" >&2 && exit 2; } ;;
    *) ((operands-- > 0)) || { echo "$(basename "$0"): there is no place for '$argument'; try --help" >&2 && exit 2; } ;;
    esac
  done
}

now() { date +%s.%N; }
seconds_since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", b - a }'; }

# step TEXT COMMAND...: run it quietly and print its time; on failure print what it said and stop.
step() {
  local text=$1 start status=0
  shift
  start=$(now)
  printf '%-62s ' "$text"
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    printf 'FAILED (exit status %s)\n' "$status"
    tail -n 60 "$log"
    return "$status"
  fi
  printf '%s\n' "$(seconds_since "$start")"
}

install_packages() {
  local missing=() sudo=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -q
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -qy --no-install-recommends "${missing[@]}"
}

# A Python with the packages of tools/requirements.txt in the build folder. Debian's own: another one on PATH may lack what venv needs.
make_python() {
  cmp -s "$root/tools/requirements.txt" "$build/venv/requirements.txt" && return
  /usr/bin/python3 -m venv --clear "$build/venv"
  "$python" -m pip install -q --disable-pip-version-check -r "$root/tools/requirements.txt"
  cp "$root/tools/requirements.txt" "$build/venv/"
}

# configure FOLDER OPTION...
configure() {
  local folder=$1
  shift
  cmake -G Ninja -S "$root" -B "$folder" -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache \
    -DPython3_EXECUTABLE=/usr/bin/python3 -DMOE_TEST_PYTHON="$python" "$@"
}
