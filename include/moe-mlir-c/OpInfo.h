/*===- OpInfo.h - what a compiler can ask about the ops -----------------------------------------------===*
 *
 * The tables that verifiers and builders work from: ops, their operands and parameters, the bounds of each parameter, and sizes that follow from
 * parameters alone. All of it is static: no context is needed, nothing is allocated, and every function may be called from any thread. Structs that
 * the library hands out have static storage; fields are only ever added at their end.
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOE_MLIR_C_OPINFO_H
#define MOE_MLIR_C_OPINFO_H

#include <math.h>
#include <mlir-c/IR.h>
#include <moert/workspace.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*===--- parameters -------------------------------------------------------------------------------===*/

typedef enum MoeMlirAttributeKind {
  MOE_MLIR_INT,   /* i64 */
  MOE_MLIR_FLOAT, /* f64: any finite number */
  MOE_MLIR_BOOL,  /* 0 or 1 */
  MOE_MLIR_ENUM   /* string; here the index of its case */
} MoeMlirAttributeKind;

/* What the verifier accepts for one parameter by itself; how parameters and operands must fit each other is in the op manual (docs/ops.md). */
typedef struct MoeMlirBounds {
  size_t struct_size;
  MoeMlirAttributeKind kind;
  bool required;            /* it has no default */
  int64_t minimum, maximum; /* both allowed; of FLOAT 0 */
  int64_t default_value;    /* unless required; of FLOAT see default_float */
  double default_float;
  int64_t num_cases; /* of ENUM */
  const char *const *cases;
} MoeMlirBounds;
#define MOE_MLIR_BOUNDS_INIT {sizeof(MoeMlirBounds), MOE_MLIR_INT, false, 0, 0, 0, 0.0, 0, NULL}

/* The bounds of the parameter `attribute` of `op`, such as "top_k" of "moe.route". False, and nothing written, if there is no such parameter, an
 * argument is NULL, or bounds->struct_size is not one that this library knows. */
MLIR_CAPI_EXPORTED bool moeMlirAttributeBounds(const char *op, const char *attribute, MoeMlirBounds *bounds);

/* What a required parameter is in ..._ATTRIBUTES_INIT: no parameter may have these values. */
#define MOE_MLIR_REQUIRED INT64_MIN
#define MOE_MLIR_REQUIRED_FLOAT (-HUGE_VAL)

/*===--- ops --------------------------------------------------------------------------------------===*/

typedef enum MoeMlirOperandKind {
  MOE_MLIR_INPUT,       /* tensor or memref that is read */
  MOE_MLIR_DESTINATION, /* tensor or memref that is written; on tensors it has a result */
  MOE_MLIR_STATE,       /* memref that lives across calls, also where the op is on tensors */
  MOE_MLIR_NUMBER,      /* index or integer that the host knows */
  MOE_MLIR_SIZES,       /* the dynamic sizes of the op's result */
  MOE_MLIR_CONTEXT      /* !moe.context */
} MoeMlirOperandKind;

typedef struct MoeMlirOperandInfo {
  const char *name;
  const char *types; /* in words: "2-D tensor or memref of bf16, f16 or f32" */
  MoeMlirOperandKind kind;
  const char *memory; /* "device", "host" or "symmetric"; "" if it is no buffer */
  bool optional, list;
  bool kept;            /* a destination whose old contents stay where the op does not write */
  bool observed;        /* a state that is only read */
  const char *in_place; /* of a destination: the input whose memory it may be; else NULL */
  size_t offset;        /* of its field in the op's struct of operands: an MlirValue, or of a list the const MlirValue * */
  size_t count_offset;  /* of a list: of its int64_t count */
} MoeMlirOperandInfo;

typedef struct MoeMlirAttributeInfo {
  const char *name;
  const MoeMlirBounds *bounds;
  size_t offset; /* of its field in the op's struct of attributes: a double if FLOAT, else an int64_t */
} MoeMlirAttributeInfo;

typedef struct MoeMlirOpInfo {
  const char *name, *summary;
  bool collective;                               /* all ranks of the context call it; never removed, merged or reordered */
  const MoeMlirOperandInfo *const *operands;     /* in order; NULL at the end */
  const MoeMlirAttributeInfo *const *attributes; /* the same */
  const char *scalar;                            /* name of the result behind those of the destinations; NULL if there is none */
  const char *scalar_type;                       /* "index", "i64"; NULL if its type is given to the builder */
  const char *region;                            /* name of its region; NULL if it has none */
  size_t operands_size, attributes_size;         /* of the structs of operands and of attributes; 0: the op has no attributes */
} MoeMlirOpInfo;

/* All ops, by name; NULL at the end. */
MLIR_CAPI_EXPORTED const MoeMlirOpInfo *const *moeMlirOps(void);
/* NULL if there is no such op. */
MLIR_CAPI_EXPORTED const MoeMlirOpInfo *moeMlirOpInfoGet(const char *op);

/*===--- by name, for bindings to other languages -------------------------------------------------===*/

/* What the functions of <moe-mlir-c/Ops.h> do, for an op whose structs were filled by the offsets above. `scalar` is null unless the type of the op's
 * last result is given, `region` is null if there is none. A null operation, or -1, with a diagnostic, if there is no such op. */
MLIR_CAPI_EXPORTED MlirOperation moeMlirOpCreate(const char *op, MlirLocation location, const void *operands, const void *attributes, MlirType scalar,
                                                 MlirRegion region);
MLIR_CAPI_EXPORTED intptr_t moeMlirOpInferResultTypes(const char *op, MlirLocation location, const void *operands, MlirType scalar, intptr_t capacity,
                                                      MlirType *types);

/*===--- workspaces -------------------------------------------------------------------------------===*/

/* What moe.workspace_size gives when the graph runs: the bytes of one rank's workspace. -1 if `info` is NULL, a parameter is out of its bounds, or
 * ep_size is 0, which stands for a number of ranks that only the run knows. The offsets within are those of moert_workspace_lay_out. */
MLIR_CAPI_EXPORTED int64_t moeMlirWorkspaceSize(const moert_workspace_info *info);

#ifdef __cplusplus
}
#endif
#endif /* MOE_MLIR_C_OPINFO_H */
