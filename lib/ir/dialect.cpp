//===- dialect.cpp - the C++ of the dialects ------------------------------------------------------===//
//
// What ODS generates, and what all ops share of the interfaces that have no C API: effects, bufferization, passes with options. It works from the
// table of lib/ir/ops.h and does not grow with the number of ops.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/ops.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/CAPI/Support.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace moe {

static bool isOneOf(StringRef name, StringRef names) { return llvm::is_contained(llvm::split(names, '|'), name); }

//===--- operands by the table --------------------------------------------------------------------===//

static const MoeOperand &entryOf(Operation *op, unsigned position) { return moeOpOf(wrap(op))->operands[moeOperandIndex(wrap(op), position)]; }
static const MoeOperand &entryOf(OpOperand &operand) { return entryOf(operand.getOwner(), operand.getOperandNumber()); }
static bool isDestination(OpOperand &operand) { return entryOf(operand).kind == MOE_DESTINATION; }

// Destinations stand together in every op.
static MutableOperandRange destinationsOf(Operation *op) {
  unsigned first = 0, count = 0;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isDestination(operand)) continue;
    if (count == 0) first = operand.getOperandNumber();
    ++count;
  }
  return MutableOperandRange(op, first, count);
}

// The result that a destination on tensors turns into.
static OpResult resultOf(OpOperand &destination) {
  unsigned result = 0;
  for (OpOperand &other : destination.getOwner()->getOpOperands()) {
    if (&other == &destination) break;
    if (isDestination(other) && isa<TensorType>(other.get().getType())) ++result;
  }
  return destination.getOwner()->getResult(result);
}

//===--- effects ----------------------------------------------------------------------------------===//

using Effects = SmallVectorImpl<MemoryEffects::EffectInstance>;

// What other ranks see. A resource of its own keeps ops that write it from being removed, merged or reordered.
struct Fabric : SideEffects::Resource::Base<Fabric> {
  StringRef getName() final { return "fabric"; }
};

static void addEffects(Operation *op, Effects &effects) {
  const MoeOp *info = moeOpOf(wrap(op));
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<BaseMemRefType>(operand.get().getType())) continue;
    const MoeOperand &entry = entryOf(operand);
    if (entry.kind != MOE_DESTINATION || entry.kept) effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (entry.kind != MOE_INPUT) effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
  if (info->fabric) effects.emplace_back(MemoryEffects::Write::get(), Fabric::get());
}

//===--- bufferization ----------------------------------------------------------------------------===//

namespace buf = bufferization;

static bool readsBuffer(OpOperand &operand) { return !isDestination(operand) || entryOf(operand).kept; }

// The same op on buffers: tensors become their buffers, results on tensors go, numbers stay.
static LogicalResult bufferizeOp(Operation *op, RewriterBase &rewriter, const buf::BufferizationOptions &options, buf::BufferizationState &state) {
  OperationState buffered(op->getLoc(), op->getName());
  SmallVector<Value> replacements;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get();
    if (isa<TensorType>(value.getType())) {
      FailureOr<Value> buffer = buf::getBuffer(rewriter, value, options, state);
      if (failed(buffer)) return failure();
      value = *buffer;
      if (isDestination(operand)) replacements.push_back(value);
    }
    buffered.addOperands(value);
  }
  buffered.addAttributes(op->getAttrs());
  for (Type type : op->getResultTypes())
    if (!isa<TensorType>(type)) buffered.addTypes(type);
  Operation *replacement = rewriter.create(buffered);
  llvm::append_range(replacements, replacement->getResults());
  buf::replaceOpWithBufferizedValues(rewriter, op, replacements);
  return success();
}

//===--- verification -----------------------------------------------------------------------------===//

static LogicalResult verifyOp(Operation *op, const MoeOp &info) {
  if (failed(unwrap(moeVerifyShared(wrap(op))))) return failure();
  return unwrap(info.verify(wrap(op)));
}

} // namespace moe

#define MOE_DEFINE_VERIFY(OP, ID)                                                                                                                    \
  LogicalResult OP::verify() { return ::moe::verifyOp(*this, ::ID); }

#define MOE_DEFINE_OP(OP, ID)                                                                                                                        \
  MOE_DEFINE_VERIFY(OP, ID)                                                                                                                          \
  void OP::getEffects(::moe::Effects &effects) { ::moe::addEffects(*this, effects); }

#define MOE_DEFINE_DESTINATION_OP(OP, ID)                                                                                                            \
  MOE_DEFINE_OP(OP, ID)                                                                                                                              \
  bool OP::bufferizesToMemoryRead(OpOperand &operand, const bufferization::AnalysisState &) { return ::moe::readsBuffer(operand); }                  \
  bool OP::bufferizesToMemoryWrite(OpOperand &operand, const bufferization::AnalysisState &) { return ::moe::isDestination(operand); }               \
  bufferization::AliasingValueList OP::getAliasingValues(OpOperand &operand, const bufferization::AnalysisState &) {                                 \
    if (!::moe::isDestination(operand)) return {};                                                                                                   \
    return {{::moe::resultOf(operand), bufferization::BufferRelation::Equivalent}};                                                                  \
  }                                                                                                                                                  \
  LogicalResult OP::bufferize(RewriterBase &rewriter, const bufferization::BufferizationOptions &options, bufferization::BufferizationState &state) { \
    return ::moe::bufferizeOp(*this, rewriter, options, state);                                                                                      \
  }

// A view touches no memory.
#define MOE_DEFINE_VIEW_OP(OP, ID)                                                                                                                   \
  MOE_DEFINE_VERIFY(OP, ID)                                                                                                                          \
  void OP::getEffects(::moe::Effects &) {}                                                                                                           \
  Value OP::getViewSource() { return getOperand(0); }

#define MOE_DEFINE_ALLOCATE_OP(OP, ID)                                                                                                               \
  MOE_DEFINE_VERIFY(OP, ID)                                                                                                                          \
  void OP::getEffects(::moe::Effects &effects) { effects.emplace_back(MemoryEffects::Allocate::get(), (*this)->getOpResult(0)); }

//===--- generated --------------------------------------------------------------------------------===//

#include "MoeDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "MoeTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "MoeAttributes.h.inc"
#define GET_OP_CLASSES
#include "MoeOps.h.inc"

#include "MoeDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "MoeTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "MoeAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "MoeOps.cpp.inc"

void moe::MoeDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "MoeTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "MoeAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "MoeOps.cpp.inc"
      >();
}

//===--- C API ------------------------------------------------------------------------------------===//

MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(Moe, moe, moe::MoeDialect)

// A type of a dialect that is registered, but not loaded, would be a null dereference.
static MLIRContext *withDialect(MlirContext context) {
  unwrap(context)->getOrLoadDialect<moe::MoeDialect>();
  return unwrap(context);
}

MlirType moeMlirContextTypeGet(MlirContext context) { return wrap(moe::ContextType::get(withDialect(context))); }
bool moeMlirTypeIsAContext(MlirType type) { return isa<moe::ContextType>(unwrap(type)); }
MlirAttribute moeMlirHostAttributeGet(MlirContext context) { return wrap(moe::HostAttr::get(withDialect(context))); }
bool moeMlirAttributeIsAHost(MlirAttribute attribute) { return isa_and_nonnull<moe::HostAttr>(unwrap(attribute)); }

//===--- passes -----------------------------------------------------------------------------------===//

namespace {
struct TablePass : OperationPass<ModuleOp> {
  const MoePass *table;
  SmallVector<std::unique_ptr<Option<std::string>>> options;

  TablePass(const MoePass *table) : OperationPass(TypeID::getFromOpaquePointer(table)), table(table) { addOptions(); }
  TablePass(const TablePass &other) : OperationPass(other), table(other.table) { addOptions(); }

  void addOptions() {
    for (const char *const *o = table->options; o && *o; o += 3)
      options.push_back(std::make_unique<Option<std::string>>(*this, o[0], llvm::cl::desc(o[2]), llvm::cl::init(std::string(o[1]))));
  }
  StringRef getName() const override { return table->name; }
  StringRef getArgument() const override { return table->name; }
  StringRef getDescription() const override { return table->description; }
  std::unique_ptr<Pass> clonePass() const override { return std::make_unique<TablePass>(*this); }
  void getDependentDialects(DialectRegistry &registry) const override {
    for (auto *dialect = table->dialects; dialect && *dialect; ++dialect) mlirDialectHandleInsertDialect((*dialect)(), wrap(&registry));
  }
  void runOnOperation() override {
    SmallVector<const char *> values;
    for (auto &option : options) values.push_back(option->getValue().c_str());
    if (mlirLogicalResultIsFailure(table->run(wrap(getOperation().getOperation()), values.data()))) signalPassFailure();
  }
};
} // namespace

void moeRegisterPass(const MoePass *pass) {
  registerPass([pass] { return std::make_unique<TablePass>(pass); });
}
