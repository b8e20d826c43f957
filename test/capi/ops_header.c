//===- ops_header.c - <moe-mlir-c/Ops.h> in C99 and in C++17 --------------------------------------===//
//
// Compiled by itself as both, with all warnings: the headers need nothing that comes before them, and every INIT macro fills its struct.
//
//===----------------------------------------------------------------------------------------------===//

#include <moe-mlir-c/Ops.h>

bool moeTestOpsHeader(void);

bool moeTestOpsHeader(void) {
  MoeMlirRouteOperands route = MOE_MLIR_ROUTE_OPERANDS_INIT;
  MoeMlirRouteAttributes parameters = MOE_MLIR_ROUTE_ATTRIBUTES_INIT;
  MoeMlirDispatchOperands dispatch = MOE_MLIR_DISPATCH_OPERANDS_INIT;
  MoeMlirBounds bounds = MOE_MLIR_BOUNDS_INIT;
  MlirLocation none = {NULL};
  return mlirOperationIsNull(moeMlirRouteCreate(none, &route, &parameters)) && moeMlirDispatchInferResultTypes(none, &dispatch, 0, NULL) == -1 &&
         moeMlirAttributeBounds("moe.route", "top_k", &bounds);
}
