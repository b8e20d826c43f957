//===- lowering.h - from an op on buffers to a call of its runtime function -----------------------===//
//
// The structs of <moert/ops.h> consist of 8-byte words, and so does moert_tensor. A call's structs, with the tensors, shapes and strides that they
// point to, are one buffer of words on the stack of the function, which all its calls share.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_IR_LOWERING_H
#define MOE_IR_LOWERING_H

#include "lib/ir/ops.h"

// Where a call is being made: everything is built in front of `before`.
struct MoeLowering {
  MlirContext mlir;
  MlirOperation before;
  bool host;         // the target is the host
  MlirValue context; // the function's moert_context, an !llvm.ptr
  MlirBlock entry;   // of the function: what lives on the stack is allocated there
  MlirBlock exit;    // takes a status and returns it
  MlirValue words;   // of the function's calls, one after the other; null before the first
  MlirValue device;  // of the rank, a moert_device as an i64; null before it is asked for
};

// What every op does: pack parameters and operands, call, leave the function if the status is an error. Results are replaced; the op is erased.
MlirLogicalResult moeLowerToCall(MlirOperation op, MoeLowering *lowering);

// The call alone, with `view` (its dynamic sizes from the op's extents) as the scalar result's tensor; the op stays.
MlirLogicalResult moeLowerViewCheck(MlirOperation op, MlirType view, MoeLowering *lowering);

// The buffer `type` in the arena of the context; leaves the function if there is no memory.
MlirValue moeAllocateBuffer(MlirType type, intptr_t numSizes, const MlirValue *sizes, MoeLowering *lowering);

void moeReplaceOp(MlirOperation op, intptr_t numValues, const MlirValue *values);

#endif
