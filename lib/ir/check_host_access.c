//===- check_host_access.c - moe-check-host-access ------------------------------------------------===//
//
// Host code of a graph reads and writes no element of a buffer that may lie on a device. Elements are the business of linalg ops, of
// scf.forall and scf.parallel, and of epilogues, which become loops on the host and kernels elsewhere; so a graph that compiles for one target
// compiles for all.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include <stdlib.h>

// The buffer that a load, store or read-modify-write accesses: the first operand that is one.
static MlirValue bufferOf(MlirOperation access) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(access); ++i)
    if (mlirTypeIsAMemRef(mlirValueGetType(mlirOperationGetOperand(access, i)))) return mlirOperationGetOperand(access, i);
  return (MlirValue){NULL};
}

#define HOST_SPACE "is in #moe.host, which devices do not address: use scf.for with memref.load and memref.store for it"

static MlirLogicalResult checkLinalg(MlirOperation op) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i)
    if (moeIsInHostSpace(mlirOperationGetOperand(op, i))) return moeError(op, "operand #%ld " HOST_SPACE, (long)i);
  return MOE_OK;
}

static MlirLogicalResult checkAccess(MlirOperation access, bool reads) {
  MlirValue buffer = bufferOf(access);
  if (mlirValueIsNull(buffer)) return MOE_OK; // of a vector on tensors
  if (moeIsDeviceWork(access)) return moeIsInHostSpace(buffer) ? moeError(access, "the buffer " HOST_SPACE) : MOE_OK;
  if (moeIsHostMemory(buffer)) return MOE_OK;
  return moeError(access, "host code would %s an element of a tensor, which may lie on a device: do it inside a linalg op or scf.forall%s",
                  reads ? "read" : "write", reads ? ", or pass a memref in #moe.host" : "");
}

static MlirLogicalResult checkAccesses(MoeOpList ops, bool reads) {
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < ops.count; ++i)
    if (mlirLogicalResultIsFailure(checkAccess(ops.ops[i], reads))) result = MOE_FAIL; // all of them, each with its place
  free(ops.ops);
  return result;
}

static MlirLogicalResult checkCopy(MlirOperation op) {
  bool copies = mlirOperationGetNumOperands(op) == 2, from = moeIsInHostSpace(mlirOperationGetOperand(op, 0));
  bool to = moeIsInHostSpace(copies ? mlirOperationGetOperand(op, 1) : mlirOperationGetResult(op, 0));
  return from == to ? MOE_OK : moeError(op, "is between #moe.host and memory that may lie on a device: pass the values as arguments of the function");
}

static MlirWalkResult visitOp(MlirOperation op, void *data) {
  MlirLogicalResult *result = data, checked = MOE_OK;
  if (moeIs(op, "linalg.")) checked = checkLinalg(op);
  if (moeIs(op, "memref.copy") || moeIs(op, "memref.memory_space_cast")) checked = checkCopy(op);
  if (mlirLogicalResultIsFailure(checked)) *result = MOE_FAIL;
  return MlirWalkResultAdvance;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MlirLogicalResult reads = checkAccesses(MOE_FIND(module, "memref.load", "affine.load", "affine.vector_load", "vector.load", "vector.transfer_read",
                                                   "vector.maskedload", "vector.gather", "vector.expandload"),
                                          true);
  MlirLogicalResult writes =
      checkAccesses(MOE_FIND(module, "memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw", "affine.store", "affine.vector_store",
                             "vector.store", "vector.transfer_write", "vector.maskedstore", "vector.scatter", "vector.compressstore"),
                    false);
  MlirLogicalResult others = MOE_OK;
  mlirOperationWalk(module, visitOp, &others, MlirWalkPreOrder);
  bool sound = mlirLogicalResultIsSuccess(reads) && mlirLogicalResultIsSuccess(writes) && mlirLogicalResultIsSuccess(others);
  return sound ? MOE_OK : MOE_FAIL;
}

const MoePass moeCheckHostAccess = {"moe-check-host-access", "Refuse host code that reads or writes elements of device memory", NULL, NULL, run};
