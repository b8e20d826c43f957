#!/usr/bin/env bash
# install.sh - what is installed serves other projects, and needs nothing of the build.
#
#   install.sh BUILD SCRATCH CC CXX [LLVM]
#
# Installs the component `runtime`, moves it to another folder, and uses it from CMake, from pkg-config and with plain compilers; then, if LLVM (the
# folder that MLIR is in) is given, the same with the component `compiler` on top.

set -euo pipefail
build=$1 scratch=$2 cc=$3 cxx=$4 llvm=${5:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
version=$(<"$source/VERSION")
cmake=${CMAKE:-cmake}
prefix=$scratch/moved
with_cuda=false
[ ! -e "$build/lib/libmoert_cuda.so" ] || with_cuda=true
warnings=(-Wall -Wextra -Wpedantic -Werror)

fail() {
  echo "install: $*" >&2
  exit 1
}

# expect TEXT COMMAND...: it succeeds and prints the text.
expect() {
  local text=$1 output
  shift
  output=$("$@" 2>&1) || fail "'$*' failed: $output"
  [[ $output == *"$text"* ]] || fail "'$*' did not print '$text', but: $output"
}

# expect_failure TEXT COMMAND...: it fails and prints the text; lines may be broken.
expect_failure() {
  local text=$1 output
  shift
  ! output=$("$@" 2>&1) || fail "'$*' succeeded"
  output=$(tr -s '[:space:]' ' ' <<<"$output")
  [[ $output == *"$text"* ]] || fail "'$*' did not print '$text', but: $output"
}

# Without what the build or the user's shell has set.
clean() { env -i PATH=/usr/bin:/bin PKG_CONFIG_PATH="$prefix/lib/pkgconfig" "$@"; }

# An installation may stand anywhere: it is moved after it was made.
install_component() {
  "$cmake" --install "$build" --prefix "$scratch/made" --component "$1" >/dev/null
  mkdir -p "$prefix"
  cp -a "$scratch/made/." "$prefix/"
  rm -rf "$scratch/made"
}

# configure FOLDER COMPONENTS OPTION...: the consumer's project.
configure() {
  local folder=$1 components=$2
  shift 2
  clean "$cmake" --no-warn-unused-cli -S "$here/consumer" -B "$scratch/$folder" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" -DCOMPONENTS="$components" \
    -DGRAPH="$source/examples/first_graph.mlir" "$@"
}

build_project() {
  configure "$1" "$2" -DREQUESTED_VERSION="${version%.*}" >/dev/null
  clean "$cmake" --build "$scratch/$1" >/dev/null
}

# build_by_pkg_config PROGRAM PACKAGE
build_by_pkg_config() {
  [ "$(clean pkg-config --modversion "$2")" = "$version" ] || fail "$2.pc does not have the version $version"
  local flags
  read -ra flags <<<"$(clean pkg-config --cflags --libs "$2")"
  clean "$cc" -std=c99 "${warnings[@]}" "$here/consumer/$1.c" "${flags[@]}" -pthread -Wl,-rpath,"$prefix/lib" -o "$scratch/$1"
}

# check_headers FOLDER OPTION...: each stands alone, in C99 and in C++17.
check_headers() {
  local folder=$1 header
  shift
  for header in "$prefix/include/$folder"/*.h; do
    echo "#include <$folder/${header##*/}>" >"$scratch/header.c"
    clean "$cc" -std=c99 "${warnings[@]}" -fsyntax-only -I"$prefix/include" "$@" "$scratch/header.c"
    clean "$cxx" -std=c++17 -x c++ "${warnings[@]}" -fsyntax-only -I"$prefix/include" "$@" "$scratch/header.c"
  done
}

# check_exports LIBRARY PATTERN: nothing but such symbols, and at least one.
check_exports() {
  local symbols others
  symbols=$(nm -D --defined-only "$prefix/lib/$1" | awk '{ print $3 }')
  [ -n "$symbols" ] || fail "$1 exports nothing"
  others=$(grep -vE "^($2)\$" <<<"$symbols" || true)
  [ -z "$others" ] || fail "$1 exports more than $2: $others"
}

# check_library NAME: versioned by the file VERSION.
check_library() {
  [ -f "$prefix/lib/lib$1.so.$version" ] || fail "there is no lib$1.so.$version"
  expect "Library soname: [lib$1.so.${version%%.*}]" readelf -d "$prefix/lib/lib$1.so"
}

# No path of the build or of the sources in what is loaded or read.
check_paths() {
  local file
  for file in "$prefix"/bin/* "$prefix"/lib/*.so; do
    ! readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -qF -e "$build" -e "$source" -e "$scratch/made" || fail "$file looks for libraries in the build"
    ! clean ldd "$file" | grep -E 'not found|libmoert|libMoeMlir' | grep -vF "$prefix/" || fail "$file finds its libraries elsewhere"
  done
  ! grep -rIlF -e "$build/" -e "$source" -e "$scratch/made" "$prefix/lib" "$prefix/include" || fail "these files name folders of the build"
}

check_cuda() {
  check_library moert_cuda
  check_exports libmoert_cuda.so 'moert__cuda_backend|moert_nccl_allgather|moert_mgpu[A-Za-z0-9]+'
  expect "moe-bench $version" clean "$prefix/bin/moe-bench" --version
}

check_runtime() {
  install_component runtime
  check_library moert
  check_exports libmoert.so 'moert_[a-z0-9_]+'
  check_paths
  ! clean ldd "$prefix/bin/moe-run" "$prefix/lib/libmoert.so" | grep -E 'libMLIR|libLLVM' || fail 'the run side needs MLIR'
  check_headers moert
  build_project runtime runtime
  expect "route: OK with libmoert $version" clean "$scratch/runtime/route"
  build_by_pkg_config route moert
  expect "route: OK with libmoert $version" clean "$scratch/route"
  expect "moe-run $version" clean "$prefix/bin/moe-run" --version
  expect "moe-kernels $version" clean "$prefix/bin/moe-kernels" --version
  # The Python package finds the library of its installation.
  expect "$version, 2 ranks" clean PYTHONPATH="$prefix/python" python3 -B -c \
    'import moert; print("%s, %d ranks" % (moert.__version__, moert.Comm.threads(2)[1].size))'
  ! $with_cuda || check_cuda
  expect_failure "the component compiler needs $prefix/lib/cmake/MoeMlir/MoeMlirCompiler.cmake, which does not exist" \
    configure incomplete 'runtime;compiler'
  expect_failure 'is compatible with requested version "999"' configure other-version runtime -DREQUESTED_VERSION=999
}

# A graph, compiled and run by the installed tools alone.
check_tools() {
  expect "moe-compile $version" clean "$prefix/bin/moe-compile" --version
  clean "$prefix/bin/moe-compile" "$source/examples/first_graph.mlir" -o "$scratch/graph.so"
  expect 'function gate' clean "$prefix/bin/moe-run" "$scratch/graph.so" --info
  clean "$prefix/bin/moe-run" "$scratch/graph.so" --ranks 2 --size T=5 --random 1 --output "ids=$scratch/ids.{rank}.npy" >/dev/null
  for rank in 0 1; do [ -s "$scratch/ids.$rank.npy" ] || fail "rank $rank left no output"; done
  expect 'moe.route' clean "$prefix/bin/moe-opt" "$source/examples/first_graph.mlir"
  expect 'moe.route' clean "$llvm/bin/mlir-opt" --load-dialect-plugin="$prefix/lib/MoeMlirPlugin.so" "$source/examples/first_graph.mlir"
  expect "moe-lsp-server $version" clean "$prefix/bin/moe-lsp-server" --version
}

# A graph for a GPU loads without one: libmoert finds the CUDA backend beside itself. It runs on the host as well.
check_device_graph() {
  local graph=$scratch/device.so
  clean CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}" "$prefix/bin/moe-compile" "$source/examples/first_graph.mlir" -o "$graph" --target sm_90a
  expect 'target sm_90a' clean "$prefix/bin/moe-run" "$graph" --info
  clean "$prefix/bin/moe-run" "$graph" --backend host --size T=5 --random 1 --output "ids=$scratch/host.npy" >/dev/null
  [ -s "$scratch/host.npy" ] || fail 'the host half of a graph for a GPU left no output'
  mv "$prefix"/lib/libmoert_cuda.so* "$scratch/"
  expect_failure 'builds with MOE_ENABLE_CUDA have it, and it lies beside libmoert' clean "$prefix/bin/moe-run" "$graph" --info
  expect_failure "cannot read '$prefix/bin/../lib/libmoert_cuda.so'" clean "$prefix/bin/moe-compile" "$source/examples/first_graph.mlir" -o "$graph" \
    --target sm_90a
  mv "$scratch"/libmoert_cuda.so* "$prefix/lib/"
}

check_compiler() {
  install_component compiler
  check_library MoeMlir
  check_exports libMoeMlir.so 'moeMlir[A-Za-z0-9]+|mlirGetDialectHandle__[a-z]+__'
  check_exports MoeMlirPlugin.so 'mlirGet(Dialect|Pass)PluginInfo'
  check_paths
  check_headers moe-mlir-c -isystem "$llvm/include"
  build_project compiler 'runtime;compiler'
  expect "embed: OK with moe-mlir $version" clean "$scratch/compiler/embed"
  expect 'function gate' clean "$prefix/bin/moe-run" "$scratch/compiler/graph.so" --info
  build_by_pkg_config embed moe-mlir
  expect "embed: OK with moe-mlir $version" clean "$scratch/embed"
  check_tools
  ! $with_cuda || check_device_graph
}

rm -rf "$scratch"
mkdir -p "$scratch"
check_runtime
[ -z "$llvm" ] || check_compiler
