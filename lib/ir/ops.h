//===- ops.h - what verifiers, lowerings and passes share -----------------------------------------===//
//
// The descriptors of the ops are generated from their .td; everything here works from them, and an op's own file adds what the table cannot
// say. C on the MLIR C API.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_IR_OPS_H
#define MOE_IR_OPS_H

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/IR.h>
#include <mlir-c/Rewrite.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

//===--- descriptors ------------------------------------------------------------------------------===//

typedef enum MoeOperandKind {
  MOE_INPUT,       // tensor or memref that is read
  MOE_DESTINATION, // tensor or memref that is written
  MOE_STATE,       // memref that lives across calls
  MOE_VALUE,       // number that the host knows
  MOE_EXTENT,      // dynamic sizes of the result: compile side only
  MOE_CONTEXT      // !moe.context
} MoeOperandKind;

typedef struct MoeOperand {
  const char *name;
  MoeOperandKind kind;
  bool optional, variadic;
  bool kept;           // destination whose old contents may stay
  bool observed;       // state that is only read
  const char *inPlace; // of a destination: the input whose memory it may be, or NULL
  const char *memory;  // "device", "host", "symmetric"; "value" and "context" are none
  int since;           // the version of the dialect that it came with
} MoeOperand;

typedef enum MoeAttributeKind { MOE_INT, MOE_FLOAT, MOE_BOOL, MOE_ENUM } MoeAttributeKind;

typedef struct MoeAttribute {
  const char *name;
  MoeAttributeKind kind;
  double defaultValue;      // of an enum: the index of the case
  const char *const *cases; // of an enum
  int numCases;
  const char *onlyFor; // the destination that alone depends on it, or NULL
} MoeAttribute;

typedef struct MoeLowering MoeLowering; // lib/ir/lowering.h

typedef struct MoeOp {
  const char *name;   // "moe.route"
  const char *symbol; // "moert_moe_route": its runtime function
  const MoeOperand *operands;
  int numOperands;
  const MoeAttribute *attributes;
  int numAttributes;
  bool fabric;        // talks to other ranks
  bool idempotent;    // a second time changes nothing
  bool kernel;        // devices have kernels for it
  const char *scalar; // name of the result behind the destinations' tensors, or NULL
  MlirLogicalResult (*verify)(MlirOperation op);
  MlirLogicalResult (*lower)(MlirOperation op, MoeLowering *lowering);
  // Rewrites the op where that is exact, or fails and leaves it; NULL: no such rewrite.
  MlirLogicalResult (*canonicalize)(MlirOperation op, MlirRewriterBase rewriter);
} MoeOp;

extern const MoeOp *const moeOps[]; // all, NULL at the end

const MoeOp *moeOpOf(MlirOperation op); // NULL if it is not one of ours

//===--- reading an op ----------------------------------------------------------------------------===//

// The operands of entry `index` of the table (the enums of the generated header): none if optional and absent.
typedef struct MoeRange {
  intptr_t first, count;
} MoeRange;
MoeRange moeOperandRange(MlirOperation op, int index);
MlirValue moeOperand(MlirOperation op, int index); // the only one of its entry; null if absent
// The entry of the table that operand number `position` belongs to.
int moeOperandIndex(MlirOperation op, intptr_t position);

int64_t moeInt(MlirOperation op, const char *attribute);      // of INT, BOOL and ENUM (index of the case); the default if absent
double moeFloat(MlirOperation op, const char *attribute);     // of FLOAT
const char *moeCase(MlirOperation op, const char *attribute); // of ENUM

//===--- verifying --------------------------------------------------------------------------------===//

#define MOE_OK mlirLogicalResultSuccess()
#define MOE_FAIL mlirLogicalResultFailure()
#define MOE_TRY(call)                                                                                                                                \
  do {                                                                                                                                               \
    if (mlirLogicalResultIsFailure(call)) return MOE_FAIL;                                                                                           \
  } while (0)

// "'moe.route' op <text>" at the op's location; failure.
MlirLogicalResult moeError(MlirOperation op, const char *format, ...) __attribute__((format(printf, 2, 3)));
// A remark "moe.route: <text>" at the op's location.
void moeRemark(MlirOperation op, const char *text);
// Verifies an op that stands nowhere yet. Upstream's verifier would say of whatever its region takes from outside that it is not visible there.
bool moeVerifyDetached(MlirOperation op);
// moeError of an op that is not there yet.
MlirLogicalResult moeErrorAt(MlirLocation location, const char *op, const char *format, ...) __attribute__((format(printf, 3, 4)));

// What holds for every op (S1 to S4, S6 and S7 in docs/errors.md); runs before the op's own verifier.
MlirLogicalResult moeVerifyShared(MlirOperation op);

enum { MOE_DYNAMIC = -1 };
intptr_t moeRank(MlirValue buffer);
int64_t moeDim(MlirValue buffer, intptr_t dim); // MOE_DYNAMIC if not known; also for a null value
MlirType moeElementType(MlirValue buffer);

// Operand `index` has at dimension `dim` the size `expected` (MOE_DYNAMIC: nothing to check), which the text calls `symbol`.
MlirLogicalResult moeCheckDim(MlirOperation op, int index, intptr_t dim, int64_t expected, const char *symbol);
// The same for two operands' dimensions.
MlirLogicalResult moeCheckSameDim(MlirOperation op, int index, intptr_t dim, int other, intptr_t otherDim);
// Operands (entry, number within the entry) have equal dimensions from `dim` and `otherDim` on.
MlirLogicalResult moeCheckTrailingDims(MlirOperation op, int index, intptr_t nth, intptr_t dim, int other, intptr_t otherNth, intptr_t otherDim);

// The region of an op with an epilogue (lib/ir/epilogue.c); runs after what is in the region was verified.
MlirLogicalResult moeVerifyEpilogue(MlirOperation op);
bool moeHasEpilogue(MlirOperation op);
bool moeOnlyReads(MlirOperation op); // with all that is in its regions; false if that is not known

//===--- all ops of the all-to-all ----------------------------------------------------------------===//

MlirLogicalResult moeCheckMetainfo(MlirOperation op, int index);
// An operand that is a mask of ranks, if it is there and a constant: it has a bit, and none beyond the parameter ep_size unless that is 0.
MlirLogicalResult moeCheckRankMask(MlirOperation op, int index);

#ifdef __cplusplus
}
#endif

#include "lib/ir/ops.inc"

#endif
