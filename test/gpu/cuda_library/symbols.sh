#!/usr/bin/env bash
# symbols.sh NM LIBRARY CUDA_OPS.H - what libmoert_cuda exports, and that it has a launcher for every op with kernels.
set -euo pipefail
nm=$1 library=$2 header=$3

exported=$("$nm" -D --defined-only "$library" | awk '{ print $3 }' | sort)
expected=$(sort <<'END'
moert__cuda_backend
moert_mgpuLaunchKernel
moert_mgpuModuleGetFunction
moert_mgpuModuleLoad
moert_mgpuModuleUnload
moert_mgpuStreamCreate
moert_mgpuStreamDestroy
moert_mgpuStreamSynchronize
moert_nccl_allgather
END
)
diff <(echo "$expected") <(echo "$exported") || { echo "symbols: < must be exported, > is exported" && exit 1; }

missing=$(comm -23 <(grep -o 'moert__cuda_[a-z0-9_]*' "$header" | sort -u) <("$nm" --defined-only "$library" | awk '{ print $3 }' | sort -u))
[ -z "$missing" ] || { echo "symbols: no launcher: $missing" && exit 1; }

needed=$(readelf -d "$library" | grep NEEDED)
! grep -E 'libcuda|libcudart' <<<"$needed" || { echo "symbols: the library must not need CUDA to be loaded" && exit 1; }
