//===- check_device_code.c - moe-check-device-code ------------------------------------------------===//
//
// After gpu-kernel-outlining: what is left in a graph's functions runs on the host, and must not touch memory of the device. Upstream's passes leave
// there, without a word, what they could make no kernel of; here it is an error that names its place in the source, the reason and what to do.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

static bool isOneOf(MlirOperation op, const char *const *names) {
  for (; *names; ++names)
    if (moeIs(op, *names)) return true;
  return false;
}
#define IS_ONE_OF(op, ...) isOneOf(op, (const char *const[]){__VA_ARGS__, NULL})

static bool isBuffer(MlirValue value) { return mlirTypeIsAMemRef(mlirValueGetType(value)) || mlirTypeIsAUnrankedMemRef(mlirValueGetType(value)); }

// The first operand that is a buffer of the device; null if there is none.
static MlirValue deviceBufferOf(MlirOperation op) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    MlirValue operand = mlirOperationGetOperand(op, i);
    if (isBuffer(operand) && !moeIsHostMemory(operand)) return operand;
  }
  return (MlirValue){NULL};
}

//===--- host code --------------------------------------------------------------------------------===//

// Ops that only say where a buffer lies, or hand it on.
static bool handsOn(MlirOperation op) {
  static const char *const views[] = {"memref.assume_alignment",
                                      "memref.cast",
                                      "memref.collapse_shape",
                                      "memref.dim",
                                      "memref.expand_shape",
                                      "memref.extract_aligned_pointer_as_index",
                                      "memref.extract_strided_metadata",
                                      "memref.memory_space_cast",
                                      "memref.rank",
                                      "memref.reinterpret_cast",
                                      "memref.subview",
                                      "memref.transpose",
                                      "memref.view",
                                      NULL};
  return isOneOf(op, views) || IS_ONE_OF(op, "func.call", "func.return", "arith.select", "builtin.unrealized_conversion_cast", "cf.", "scf.condition",
                                         "scf.for", "scf.while", "scf.yield");
}

#define DEVICE_WORK "do it inside a linalg op or scf.forall"

static const struct Refusal {
  const char *names[12];
  const char *text;
} refusals[] = {{{"memref.load", "affine.load", "vector.load", "vector.transfer_read", "vector.maskedload", "vector.gather", "vector.expandload"},
                 "host code would read elements of a buffer of the device: " DEVICE_WORK ", or pass a memref in #moe.host"},
                {{"memref.store", "affine.store", "vector.store", "vector.transfer_write", "vector.maskedstore", "vector.scatter",
                  "vector.compressstore", "memref.atomic_rmw", "memref.generic_atomic_rmw"},
                 "host code would write elements of a buffer of the device: " DEVICE_WORK},
                {{"memref.copy"}, "host code would copy a buffer of the device: use linalg.copy"},
                {{"linalg."}, "has no lowering to a kernel: write it as linalg.generic"}};

static MlirLogicalResult refuse(MlirOperation op) {
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; ++i)
    if (isOneOf(op, refusals[i].names)) return moeError(op, "%s", refusals[i].text);
  return moeError(op, "host code would use a buffer of the device: " DEVICE_WORK);
}

// Upstream's conversion leaves a nest as it is if the bounds of an inner loop are computed in an outer one, or stand behind side effects.
#define NO_KERNEL                                                                                                                                    \
  "could not be made a kernel: bounds of inner loops must not depend on outer ones, and nothing may stand between them; use one nest, or linalg"

// Our runtime launches kernels on the stream of the context; memory and order are its own business.
static MlirLogicalResult checkGpuOp(MlirOperation op) {
  if (moeIs(op, "gpu.launch_func")) {
    if (mlirOperationGetNumResults(op) == 0) return MOE_OK;
    return moeError(op, "is asynchronous: kernels of a graph run in order on the stream of its context, without tokens");
  }
  return moeError(op, "is not served by the runtime: a graph's buffers come from its arguments and from tensors, and its kernels run in order on the "
                      "stream of its context");
}

//===--- what kernels and ops of ours are given ---------------------------------------------------===//

static const char *hostMemoryText(MlirValue buffer) {
  MlirValue root = moeRootOf(buffer);
  MlirOperation op = mlirValueIsAOpResult(root) ? mlirOpResultGetOwner(root) : (MlirOperation){NULL};
  if (!mlirOperationIsNull(op) && moeIs(op, "memref.get_global"))
    return "a constant tensor, which lies in host memory: pass it as an argument of the function, or make it with linalg.fill or linalg.generic";
  if (!mlirOperationIsNull(op) && moeIs(op, "memref.alloca"))
    return "a buffer on the stack of the host: make it with tensor.empty, or take it as an argument";
  return "a buffer in #moe.host, which kernels do not address: use scf.for with memref.load and memref.store for it";
}

static MlirLogicalResult checkKernelOperands(MlirOperation launch) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(launch); ++i) {
    MlirValue operand = mlirOperationGetOperand(launch, i);
    if (isBuffer(operand) && moeIsHostMemory(operand)) return moeError(launch, "a kernel would access %s", hostMemoryText(operand));
  }
  return MOE_OK;
}

static MlirLogicalResult checkOurOperands(MlirOperation op) {
  const MoeOp *info = moeOpOf(op);
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    const MoeOperand *entry = &info->operands[moeOperandIndex(op, i)];
    MlirValue operand = mlirOperationGetOperand(op, i);
    if (strcmp(entry->memory, "host") != 0 && isBuffer(operand) && moeIsHostMemory(operand))
      return moeError(op, "operand '%s' is %s", entry->name, hostMemoryText(operand));
  }
  return MOE_OK;
}

// Where values meet, it could not be seen any more whose memory it is.
static MlirLogicalResult checkMeeting(MlirOperation op) {
  if (!IS_ONE_OF(op, "arith.select", "cf.", "scf.condition", "scf.for", "scf.while", "scf.yield")) return MOE_OK;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    MlirValue operand = mlirOperationGetOperand(op, i);
    if (isBuffer(operand) && !moeIsInHostSpace(operand) && moeIsHostMemory(operand)) return moeError(op, "hands on %s", hostMemoryText(operand));
  }
  return MOE_OK;
}

static MlirLogicalResult checkHostOp(MlirOperation op) {
  if (moeOpOf(op)) return checkOurOperands(op);
  if (moeIs(op, "gpu.")) {
    MOE_TRY(checkGpuOp(op));
    return checkKernelOperands(op);
  }
  if (IS_ONE_OF(op, "scf.parallel", "scf.forall", "affine.parallel")) return moeError(op, NO_KERNEL);
  MOE_TRY(checkMeeting(op));
  return mlirValueIsNull(deviceBufferOf(op)) || handsOn(op) ? MOE_OK : refuse(op);
}

//===--- kernels ----------------------------------------------------------------------------------===//

static MlirLogicalResult checkKernelOp(MlirOperation op) {
  if (moeIs(op, "func.call")) {
    MlirStringRef callee = mlirFlatSymbolRefAttrGetValue(mlirOperationGetAttributeByName(op, STR("callee")));
    return moeError(op, "is in a kernel, but '%.*s' has no code for the device: call it outside of linalg ops and parallel loops", (int)callee.length,
                    callee.data);
  }
  return moeCheckArithmetic(op);
}

//===--- the pass ---------------------------------------------------------------------------------===//

typedef struct Check {
  MlirLogicalResult (*op)(MlirOperation op);
  MlirOperation root;
  MlirLogicalResult result;
} Check;

// What lies inside something that was refused is not reported once more.
static MlirWalkResult visit(MlirOperation op, void *data) {
  Check *check = data;
  if (mlirOperationEqual(op, check->root) || mlirLogicalResultIsSuccess(check->op(op))) return MlirWalkResultAdvance;
  check->result = MOE_FAIL;
  return MlirWalkResultSkip;
}

static MlirLogicalResult checkAll(MlirOperation module, const char *container, MlirLogicalResult (*op)(MlirOperation op)) {
  MoeOpList roots = MOE_FIND(module, container);
  Check check = {op, {NULL}, MOE_OK};
  for (intptr_t i = 0; i < roots.count; ++i) {
    check.root = roots.ops[i];
    mlirOperationWalk(check.root, visit, &check, MlirWalkPreOrder);
  }
  free(roots.ops);
  return check.result;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MlirLogicalResult host = checkAll(module, "func.func", checkHostOp), kernels = checkAll(module, "gpu.func", checkKernelOp);
  return mlirLogicalResultIsSuccess(host) ? kernels : host; // both were looked at, so that every place is named
}

const MoePass moeCheckDeviceCode = {"moe-check-device-code", "Refuse host code that touches memory of the device, and kernels that touch the host's",
                                    NULL, NULL, run};
