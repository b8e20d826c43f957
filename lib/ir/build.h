//===- build.h - making ops through the MLIR C API ------------------------------------------------===//
//
// Everything is inserted in front of the operation `before`, at its location.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_IR_BUILD_H
#define MOE_IR_BUILD_H

#include "lib/ir/ops.h"

enum { MOE_MAX_RANK = 16 }; // of the buffers of our ops

MlirNamedAttribute moeNamed(MlirContext context, const char *name, MlirAttribute attribute);
// An op that is inserted nowhere yet.
MlirOperation moeCreate(MlirLocation location, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numResults,
                        const MlirType *results, intptr_t numAttributes, const MlirNamedAttribute *attributes);
MlirOperation moeBuild(MlirOperation before, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numResults,
                       const MlirType *results, intptr_t numAttributes, const MlirNamedAttribute *attributes);
// The same for an op of one result, which is returned.
MlirValue moeBuildValue(MlirOperation before, const char *name, intptr_t numOperands, const MlirValue *operands, MlirType result,
                        intptr_t numAttributes, const MlirNamedAttribute *attributes);

// "linalg.copy" and "linalg.fill", on buffers.
void moeBuildLinalg(MlirOperation before, const char *name, MlirValue input, MlirValue output);

MlirValue moeBuildConstant(MlirOperation before, MlirType integerOrIndex, int64_t value);
MlirValue moeBuildIndex(MlirOperation before, MlirValue number);  // an index or i64 as index
MlirValue moeBuildInt64(MlirOperation before, MlirValue number);  // the same as i64
MlirValue moeBuildPointer(MlirOperation before, MlirValue int64); // !llvm.ptr
MlirType moePointerType(MlirContext context);
MlirType moeInt64Type(MlirContext context);

// Runs of ops of a module: all with one of the names (the last is NULL; "moe." stands for all of the dialect that the table of ops has), in walking
// order. The array is the caller's to free.
typedef struct MoeOpList {
  MlirOperation *ops;
  intptr_t count, capacity;
} MoeOpList;
MoeOpList moeFindOps(MlirOperation root, const char *const *names);
#define MOE_FIND(root, ...) moeFindOps(root, (const char *const[]){__VA_ARGS__, NULL})

bool moeIs(MlirOperation op, const char *name);
MlirOperation moeProducer(MlirValue value, const char *name); // the op of that name that makes the value, or null
bool moeIsPublic(MlirOperation symbol);                       // also if it does not say so

// Facts about types and values
int64_t moeDtypeCode(MlirType element);                     // moert_dtype as code | bits << 8 | lanes << 16
int64_t moeElementBytes(MlirType element);                  // 0 if not 1, 2, 4 or 8
int64_t moeStaticBytes(MlirType buffer);                    // MOE_DYNAMIC if a dimension is not known or the product overflows
bool moeConstantValue(MlirValue number, int64_t *constant); // of arith.constant and index.constant
// Whether an op around `op` makes what is inside it the work of the device.
bool moeIsDeviceWork(MlirOperation op);
bool moeIsInHostSpace(MlirValue value); // a memref in #moe.host
// Whether a buffer is host memory whatever the target: in #moe.host, a constant, or on a function's stack.
bool moeIsHostMemory(MlirValue buffer);
// What casts and views of a buffer are made of.
MlirValue moeRootOf(MlirValue buffer);
// That an op of arith or math is none on 8-bit floats: nothing lowers those, and LLVM would say so of something else.
MlirLogicalResult moeCheckArithmetic(MlirOperation op);
MlirLogicalResult moeCheckExtents(MlirOperation op, int index, MlirType buffer); // as many as dynamic dimensions
MlirLogicalResult moeCheckContiguousBuffer(MlirOperation op, MlirType buffer);   // identity layout, default memory space, at most MOE_MAX_RANK

#endif
