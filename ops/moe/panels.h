//===- panels.h - what ops with weights in panels share -------------------------------------------===//
#ifndef MOE_OPS_PANELS_H
#define MOE_OPS_PANELS_H

#include "lib/ir/lowering.h"
#include "lib/reference/routed_panels.h"

// The operand has the shape of so many panels (MOE_DYNAMIC: not known).
MlirLogicalResult moeCheckPanels(MlirOperation op, int operand, int64_t panels, moert__routed_panel panel);

#endif
