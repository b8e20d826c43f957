//===- dialect.td - the `moe` dialect without its ops ---------------------------------------------===//
//
// What other dialects share: the context of a call, and the memory space of the host.
//
//===----------------------------------------------------------------------------------------------===//

#ifndef MOE_DIALECT
#define MOE_DIALECT

include "lib/ir/base.td"
include "mlir/IR/AttrTypeBase.td"

def Moe_Dialect : Dialect {
  let name = "moe";
  let cppNamespace = "::moe";
  let summary = "Mixture-of-experts layers over several ranks";
  let description = [{
    Ops in destination-passing style on tensors or memrefs; the last operand of each is a `!moe.context`.
    What changes per deployment is an attribute, what changes per call an operand.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];  // canonicalisation makes tensor.empty and tensor.dim
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

//===--- types and memory spaces ------------------------------------------------------------------===//

def Moe_ContextType : TypeDef<Moe_Dialect, "Context"> {
  let mnemonic = "context";
  let summary = "The communicator, device, stream, deadline and arena of a call";
  let description = "A `moert_context *` of the caller. It lowers to `!llvm.ptr`.";
}
def Moe_Context : Type<Moe_ContextType.predicate, "!moe.context", Moe_ContextType.cppType>,
                  BuildableType<"$_builder.getType<::moe::ContextType>()"> {
  string memory = "context";
}

def Moe_HostAttr : AttrDef<Moe_Dialect, "Host"> {
  let mnemonic = "host";
  let summary = "The memory space of buffers that host code reads and writes";
  let description = "A memref without a memory space lies on the device of the context.";
}

#endif // MOE_DIALECT
