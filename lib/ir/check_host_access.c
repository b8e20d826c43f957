//===- check_host_access.c - moe-check-host-access ------------------------------------------------===//
//
// Host code of a graph reads and writes no element of a buffer that may lie on a device. Elements are the business of linalg ops, of
// scf.forall and scf.parallel, and of epilogues, which become loops on the host and kernels elsewhere; so a graph that compiles for one target
// compiles for all.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <stdlib.h>

// Whether an op around `op` makes what is inside it the work of the device.
static bool isDeviceWork(MlirOperation op) {
  for (op = mlirOperationGetParentOperation(op); !mlirOperationIsNull(op); op = mlirOperationGetParentOperation(op))
    if (moeIs(op, "linalg.") || moeIs(op, "scf.forall") || moeIs(op, "scf.parallel") || moeIs(op, "affine.parallel") || moeHasEpilogue(op))
      return true;
  return false;
}

// What casts and views of a buffer are made of. Unreachable code can have a circle of them.
static MlirValue rootOf(MlirValue buffer) {
  for (int views = 0; views < 1024 && mlirValueIsAOpResult(buffer); ++views) {
    MlirOperation op = mlirOpResultGetOwner(buffer);
    if (!moeIs(op, "memref.") || mlirOperationGetNumOperands(op) == 0 || !mlirTypeIsAMemRef(mlirValueGetType(mlirOperationGetOperand(op, 0)))) break;
    buffer = mlirOperationGetOperand(op, 0);
  }
  return buffer;
}

// Constants and what a function keeps on its stack are host memory whatever the target.
static bool isHostMemory(MlirValue buffer) {
  if (moeMlirAttributeIsAHost(mlirMemRefTypeGetMemorySpace(mlirValueGetType(buffer)))) return true;
  MlirValue root = rootOf(buffer);
  if (!mlirValueIsAOpResult(root)) return false;
  MlirOperation op = mlirOpResultGetOwner(root);
  return moeIs(op, "memref.get_global") || moeIs(op, "memref.alloca");
}

// The buffer that a load, store or read-modify-write accesses.
static MlirValue bufferOf(MlirOperation access) {
  MlirValue first = mlirOperationGetOperand(access, 0); // of a store the value
  return mlirTypeIsAMemRef(mlirValueGetType(first)) ? first : mlirOperationGetOperand(access, 1);
}

static MlirLogicalResult check(MlirOperation access) {
  bool reads = moeIs(access, "memref.load") || moeIs(access, "affine.load");
  if (isDeviceWork(access) || isHostMemory(bufferOf(access))) return MOE_OK;
  return moeError(access, "host code would %s an element of a tensor, which may lie on a device: do it inside a linalg op or scf.forall%s",
                  reads ? "read" : "write", reads ? ", or pass a memref in #moe.host" : "");
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MoeOpList accesses =
      MOE_FIND(module, "memref.load", "memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw", "affine.load", "affine.store");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < accesses.count; ++i)
    if (mlirLogicalResultIsFailure(check(accesses.ops[i]))) result = MOE_FAIL; // all of them, each with its place
  free(accesses.ops);
  return result;
}

const MoePass moeCheckHostAccess = {"moe-check-host-access", "Refuse host code that reads or writes elements of device memory", NULL, NULL, run};
