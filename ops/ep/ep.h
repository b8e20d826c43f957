//===- ep.h - what the verifiers of the dialect `ep` share ------------------------------------------===//
#ifndef OPS_EP_EP_H
#define OPS_EP_EP_H

#include "lib/ir/lowering.h"

MlirLogicalResult epCheckOneRank(MlirOperation op);                     // n_gpus_per_node and n_nodes
MlirLogicalResult epCheckCounters(MlirOperation op, int index);         // their number of words
MlirLogicalResult epCheckTables(MlirOperation op, int first, int last); // their number of entries
MlirLogicalResult epCheckTokens(MlirOperation op, int index);           // at most max_token_per_rank in dimension 0

#endif
