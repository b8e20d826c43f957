//===- base.td - what the ops of both dialects are made of ----------------------------------------===//
//
// An operand's constraint says, besides its types, what the rest of the project generates code from: its
// element types, its rank, and where its memory lies. cmake/generate.py reads these fields through
// `llvm-tblgen --dump-json`.
//
//===----------------------------------------------------------------------------------------------===//

#ifndef MOE_MLIR_BASE
#define MOE_MLIR_BASE

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.td"

//===--- operands ---------------------------------------------------------------------------------===//

// Tensor or memref. `rank` -1: any rank from 1. Device memory is the default memory space.
class Moe_Buffer<string what, list<Type> types, int bufferRank = -1>
    : AnyTypeOf<!if(!lt(bufferRank, 0), [RankedTensorOf<types>, MemRefOf<types>],
                                        [TensorRankOf<types, [bufferRank]>, MemRefRankOf<types, [bufferRank]>]),
                what> {
  list<Type> elementTypes = types;
  int rank = bufferRank;
  string memory = "device";
}

// Memory that outlives a call and has no value semantics: a memref, also where the op is on tensors.
class Moe_State<string what, list<Type> types, int bufferRank, string space>
    : AnyTypeOf<[MemRefRankOf<types, [bufferRank]>], what> {
  list<Type> elementTypes = types;
  int rank = bufferRank;
  string memory = space;
}

def Moe_AnyElement : AnyTypeOf<[F32, F16, BF16, F8E4M3FN, F8E5M2, F8E8M0FNU, F64, AnyI8, AnyI16, AnyI32, AnyI64], "a whole-byte element type">;

def Moe_Float1     : Moe_Buffer<"1-D tensor or memref of bf16, f16 or f32", [BF16, F16, F32], 1>;
def Moe_Float2     : Moe_Buffer<"2-D tensor or memref of bf16, f16 or f32", [BF16, F16, F32], 2>;
def Moe_Float3     : Moe_Buffer<"3-D tensor or memref of bf16, f16 or f32", [BF16, F16, F32], 3>;
def Moe_FloatOrCodes3 : Moe_Buffer<"3-D tensor or memref of bf16, f16, f32 or i8 (signless or ui8)", [BF16, F16, F32, I8, UI8], 3>;
def Moe_CodeScales3 : Moe_Buffer<"3-D tensor or memref of f8E4M3FN, f8E8M0FNU or i8 (signless or ui8)", [F8E4M3FN, F8E8M0FNU, I8, UI8], 3>;
def Moe_FloatN     : Moe_Buffer<"tensor or memref of bf16, f16 or f32", [BF16, F16, F32]>;
def Moe_F32x1      : Moe_Buffer<"1-D tensor or memref of f32", [F32], 1>;
def Moe_F32x2      : Moe_Buffer<"2-D tensor or memref of f32", [F32], 2>;
def Moe_BF16x2     : Moe_Buffer<"2-D tensor or memref of bf16", [BF16], 2>;
def Moe_I32x1      : Moe_Buffer<"1-D tensor or memref of i32 (signless or ui32)", [I32, UI32], 1>;
def Moe_SignedI32x1 : Moe_Buffer<"1-D tensor or memref of i32", [I32], 1>;
def Moe_I32x2      : Moe_Buffer<"2-D tensor or memref of i32", [I32], 2>;
def Moe_I32x3      : Moe_Buffer<"3-D tensor or memref of i32", [I32], 3>;
def Moe_Bytes2     : Moe_Buffer<"2-D tensor or memref of i8 (signless or ui8)", [I8, UI8], 2>;
def Moe_Bytes3     : Moe_Buffer<"3-D tensor or memref of i8 (signless or ui8)", [I8, UI8], 3>;
def Moe_E4M3Scales2 : Moe_Buffer<"2-D tensor or memref of f8E4M3FN or i8 (signless or ui8)", [F8E4M3FN, I8, UI8], 2>;
def Moe_E4M3Scales3 : Moe_Buffer<"3-D tensor or memref of f8E4M3FN or i8 (signless or ui8)", [F8E4M3FN, I8, UI8], 3>;
def Moe_Codes2     : Moe_Buffer<"2-D tensor or memref of i8 (signless or ui8) or f8E4M3FN", [I8, UI8, F8E4M3FN], 2>;
def Moe_Scales2    : Moe_Buffer<"2-D tensor or memref of f8E4M3FN, f8E8M0FNU, i8 (signless or ui8) or f32", [F8E4M3FN, F8E8M0FNU, I8, UI8, F32], 2>;
def Moe_FloatOrCodesN : Moe_Buffer<"tensor or memref of bf16, f16, f32, f8E4M3FN or i8 (signless or ui8)", [BF16, F16, F32, F8E4M3FN, I8, UI8]>;
def Moe_Payload    : Moe_Buffer<"tensor or memref of a whole-byte element type", [Moe_AnyElement]>;

def Moe_WorkspaceMemory
    : Moe_State<"1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor)", [I8], 1, "symmetric">;
def Moe_Metainfo
    : Moe_State<"1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor)", [I64], 1, "host">;

// A number that the host knows at the call. One that is optional, and absent, is 0 in C.
def Moe_Count      : AnyTypeOf<[Index, I64], "index or i64">;

//===--- static parameters ------------------------------------------------------------------------===//

class Moe_Int<int minimumValue, int maximumValue>
    : ConfinedAttr<I64Attr, [IntMinValue<minimumValue>, IntMaxValue<maximumValue>]> {
  int minimum = minimumValue;
  int maximum = maximumValue;
}

class Moe_OneOf<list<string> names>
    : StringBasedAttr<CPred<"::moe::isOneOf(::llvm::cast<::mlir::StringAttr>($_self).getValue(), \""
                            # !interleave(names, "|") # "\")">, "one of " # !interleave(names, ", ")> {
  list<string> cases = names;
}

def Moe_Float : ConfinedAttr<F64Attr, [AttrConstraint<CPred<"::llvm::cast<::mlir::FloatAttr>($_self).getValue().isFinite()">, "which is finite">]>;

//===--- ops --------------------------------------------------------------------------------------===//

// `id` is the op's name as a C identifier: <dialect>_<mnemonic>. The ops/<dialect>/<mnemonic>.c of an op
// defines its hooks under that name; `destinations` are the operands it writes, `kept` those among them
// whose old contents it may keep (they are read as well as written), `inPlace` pairs "destination=input" that may be the very same
// memory, because the op reads each element of the input before it writes that element of the destination. `observed` are states that
// it only reads. `strided` are matrices whose rows may lie apart: elements of a row lie together, rows at any distance that is no shorter than a row;
// all other buffers are contiguous. `canonicalizes` says that the op's file defines <id>_canonicalize, which rewrites the op where that is exact.
// `since` are pairs "operand=version" of optional operands that came with a later version of the dialect: bytecode of an older one has them absent.
// `onlyFor` are pairs "parameter=destination": no other destination depends on the parameter, which has a default. `scalar` is
// the result, if any, that stands behind the tensors of the destinations: a number, or a view, that host code has at once.
class Moe_Op<Dialect dialect, string mnemonic, string id, list<Trait> traits = []> : Op<dialect, mnemonic, traits # [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  string identifier = id;
  list<string> destinations = [];
  list<string> kept = [];
  list<string> inPlace = [];
  list<string> observed = [];
  list<string> strided = [];
  list<string> since = [];
  list<string> onlyFor = [];
  string scalar = "";
  bit fabric = 0;          // it talks to other ranks: never removed, merged or reordered
  bit runtime = 1;         // it has a function moert_<id> in the runtime
  bit kernel = 1;          // devices have kernels for it; else what the host does serves every target
  bit canonicalizes = 0;
  bit idempotent = 0;      // once more on its own result, with the same other operands, changes nothing
  let hasVerifier = 1;
  let useCustomPropertiesEncoding = 1;
}

// Destination-passing ops, on tensors or on memrefs.
class Moe_DestinationOp<Dialect dialect, string mnemonic, string id, list<Trait> traits = []> : Moe_Op<dialect, mnemonic, id, traits # [
    DeclareOpInterfaceMethods<BufferizableOpInterface,
        ["bufferizesToMemoryRead", "bufferizesToMemoryWrite", "bufferizesToElementwiseAccess", "getAliasingValues", "bufferize"]>]> {
  let hasCanonicalizeMethod = 1;
  let extraClassDeclaration = "::mlir::MutableOperandRange getDpsInitsMutable() { return ::moe::destinationsOf(*this); }";
  let extraClassDefinition = "MOE_DEFINE_DESTINATION_OP($cppClass, " # id # ")";
}

// Destination-passing ops whose first destination, a matrix, passes through an optional region before it is stored: see lib/ir/epilogue.c. They
// have a parameter `has_epilogue_fusion`, false by default.
class Moe_EpilogueOp<Dialect dialect, string mnemonic, string id, list<Trait> traits = []>
    : Moe_DestinationOp<dialect, mnemonic, id, traits # [RecursiveMemoryEffects]> {
  let regions = (region VariadicRegion<SizedRegion<1>>:$epilogue);  // none or one
  let hasRegionVerifier = 1;
  let extraClassDefinition = "MOE_DEFINE_EPILOGUE_OP($cppClass, " # id # ")";
}

#endif // MOE_MLIR_BASE
