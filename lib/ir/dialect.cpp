//===- dialect.cpp - the C++ of the dialects ------------------------------------------------------===//
//
// What ODS generates, and what all ops share of the interfaces that have no C API: effects, bufferization, passes with options. It works from the
// table of lib/ir/ops.h and does not grow with the number of ops.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/traits.h" // first

#include "lib/ir/ops.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/CAPI/Rewrite.h"
#include "mlir/CAPI/Support.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/InliningUtils.h"
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
    if (entry.kind != MOE_INPUT && !entry.observed) effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
  if (info->fabric) effects.emplace_back(MemoryEffects::Write::get(), Fabric::get());
}

//===--- bufferization ----------------------------------------------------------------------------===//

namespace buf = bufferization;

static bool readsBuffer(OpOperand &operand) { return !isDestination(operand) || entryOf(operand).kept; }

static bool mayShare(OpOperand &destination, OpOperand &input) {
  const MoeOperand &entry = entryOf(destination);
  return entry.inPlace && StringRef(entry.inPlace) == entryOf(input).name;
}

// Whether of these operands each is read before it is written, element by element: a destination and the input that it may replace.
static bool accessesElementwise(ArrayRef<OpOperand *> operands) {
  return operands.size() == 2 && (mayShare(*operands[0], *operands[1]) || mayShare(*operands[1], *operands[0]));
}

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
  for (Region &region : op->getRegions()) buffered.addRegion()->takeBody(region);
  for (Type type : op->getResultTypes())
    if (!isa<TensorType>(type)) buffered.addTypes(type);
  Operation *replacement = rewriter.create(buffered);
  llvm::append_range(replacements, replacement->getResults());
  buf::replaceOpWithBufferizedValues(rewriter, op, replacements);
  return success();
}

//===--- bytecode ---------------------------------------------------------------------------------===//

struct Version : DialectVersion {
  explicit Version(uint64_t number) : number(number) {}
  uint64_t number;
};

// A file of an older version stays readable; one of a newer version may hold what this build does not know.
struct Versioning : BytecodeDialectInterface {
  explicit Versioning(Dialect *dialect) : BytecodeDialectInterface(dialect) {}

  void writeVersion(DialectBytecodeWriter &writer) const override { writer.writeVarInt(MOE_MLIR_DIALECT_VERSION); }

  std::unique_ptr<DialectVersion> readVersion(DialectBytecodeReader &reader) const override {
    uint64_t number;
    if (failed(reader.readVarInt(number))) return nullptr;
    if (number <= MOE_MLIR_DIALECT_VERSION) return std::make_unique<Version>(number);
    reader.emitError() << "bytecode has version " << number << " of the dialect '" << getDialect()->getNamespace()
                       << "', but moe-mlir " MOE_VERSION " reads versions up to " << MOE_MLIR_DIALECT_VERSION << ": use a newer moe-mlir";
    return nullptr;
  }
};

// Of the dialect in the file. A program that does not know the dialect writes none.
static uint64_t versionOf(DialectBytecodeReader &reader, StringRef dialect) {
  FailureOr<const DialectVersion *> version = reader.getDialectVersion(dialect);
  return succeeded(version) ? static_cast<const Version *>(*version)->number : MOE_MLIR_DIALECT_VERSION;
}

// Whether the op has got the sizes of its segments since that version, in which each operand stood for one value.
static bool hadNoSegments(const MoeOp &info, uint64_t version) {
  int older = 0, newer = 0;
  for (const MoeOperand &operand : ArrayRef(info.operands, info.numOperands))
    if (operand.optional || operand.variadic) ++(uint64_t(operand.since) > version ? newer : older);
  return older == 0 && newer > 1;
}

// Operands that came with a later version than the file's are absent: the sizes of the segments, which stand by position, get a 0 for each.
static DictionaryAttr withSegments(DictionaryAttr parameters, const MoeOp &info, uint64_t version) {
  auto given = parameters.getAs<DenseI32ArrayAttr>("operandSegmentSizes");
  SmallVector<int32_t> sizes;
  if (given)
    sizes.append(given.asArrayRef().begin(), given.asArrayRef().end());
  else if (hadNoSegments(info, version))
    sizes.assign(llvm::count_if(ArrayRef(info.operands, info.numOperands), [&](const MoeOperand &o) { return uint64_t(o.since) <= version; }), 1);
  else
    return parameters;
  for (int i = 0; i < info.numOperands; ++i)
    if (uint64_t(info.operands[i].since) > version && size_t(i) <= sizes.size()) sizes.insert(sizes.begin() + i, 0);
  NamedAttrList all(parameters);
  all.set("operandSegmentSizes", DenseI32ArrayAttr::get(parameters.getContext(), sizes));
  return all.getDictionary(parameters.getContext());
}

// Parameters are written by name. (By default they would be by position, and a new one would make every older file unreadable.)
template <typename Op> LogicalResult readParameters(DialectBytecodeReader &reader, OperationState &state, const MoeOp &info) {
  DictionaryAttr parameters;
  if (failed(reader.readAttribute(parameters))) return failure();
  parameters = withSegments(parameters, info, versionOf(reader, Op::getOperationName().split('.').first));
  return Op::setPropertiesFromAttr(state.getOrAddProperties<typename Op::Properties>(), parameters, [&] { return reader.emitError(); });
}

template <typename Op> void writeParameters(Op op, DialectBytecodeWriter &writer) {
  Attribute parameters = Op::getPropertiesAsAttr(op->getContext(), op.getProperties());
  writer.writeAttribute(parameters ? parameters : DictionaryAttr::get(op->getContext()));
}

//===--- inlining ---------------------------------------------------------------------------------===//

// A graph's private functions are inlined before anything else; our ops may stand wherever they do.
struct Inlining : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};

//===--- canonicalisation -------------------------------------------------------------------------===//

static bool isEmpty(Type type) {
  auto shaped = cast<ShapedType>(type);
  return shaped.hasRank() && llvm::is_contained(shaped.getShape(), 0);
}

static SmallVector<Value> destinationValues(Operation *op) {
  SmallVector<Value> values;
  for (OpOperand &operand : op->getOpOperands())
    if (isDestination(operand)) values.push_back(operand.get());
  return values;
}

// Whether nothing that stands between two ops of a block writes memory.
static bool onlyReadsBetween(Operation *first, Operation *last) {
  for (Operation *op = first->getNextNode(); op != last; op = op->getNextNode())
    if (!op || (!isMemoryEffectFree(op) && !hasSingleEffect<MemoryEffects::Read>(op))) return false; // none: unreachable code uses before it defines
  return true;
}

// Whether the op does once more what made the values of its destinations.
static bool repeats(Operation *op, ArrayRef<Value> destinations) {
  Operation *before = destinations.front().getDefiningOp();
  if (!before || before->getBlock() != op->getBlock() || before->getName() != op->getName()) return false;
  if (before->getAttrDictionary() != op->getAttrDictionary() || before->getNumOperands() != op->getNumOperands()) return false;
  if (before->getResults() != ValueRange(destinations)) return false;
  for (auto [mine, theirs] : llvm::zip(op->getOpOperands(), before->getOpOperands()))
    if (!isDestination(mine) && mine.get() != theirs.get()) return false;
  return onlyReadsBetween(before, op);
}

static bool writesState(Operation *op) {
  return llvm::any_of(op->getOpOperands(), [](OpOperand &operand) { return entryOf(operand).kind == MOE_STATE && !entryOf(operand).observed; });
}

// A local op that provably leaves its destinations, and all else, as they are gives way to them.
static LogicalResult removeIdentity(Operation *op, RewriterBase &rewriter) {
  const MoeOp *info = moeOpOf(wrap(op));
  SmallVector<Value> destinations = destinationValues(op);
  if (info->fabric || info->scalar || destinations.empty() || writesState(op)) return failure();
  bool empty = llvm::all_of(destinations, [](Value value) { return isEmpty(value.getType()); });
  if (!empty && !(info->idempotent && repeats(op, destinations))) return failure();
  rewriter.replaceOp(op, ArrayRef(destinations).take_front(op->getNumResults()));
  return success();
}

// Whether an op on tensors has a result for that destination which nobody uses.
static bool isUnused(Operation *op, StringRef destination) {
  return llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
    return isa<TensorType>(operand.get().getType()) && destination == entryOf(operand).name && resultOf(operand).use_empty();
  });
}

// Parameters that only an unused result depends on get their defaults, so that ops which differ in nothing else are one.
static LogicalResult resetIdleParameters(Operation *op, RewriterBase &rewriter) {
  const MoeOp *info = moeOpOf(wrap(op));
  DictionaryAttr given = op->getAttrDictionary();
  rewriter.startOpModification(op);
  for (const MoeAttribute &parameter : ArrayRef(info->attributes, info->numAttributes))
    if (parameter.onlyFor && isUnused(op, parameter.onlyFor)) op->removeAttr(parameter.name);
  op->getName().populateDefaultProperties(op->getPropertiesStorage());
  if (op->getAttrDictionary() == given) return rewriter.cancelOpModification(op), failure();
  return rewriter.finalizeOpModification(op), success();
}

static LogicalResult rewriteAsItsFileSays(Operation *op, RewriterBase &rewriter) {
  const MoeOp *info = moeOpOf(wrap(op));
  return info->canonicalize ? unwrap(info->canonicalize(wrap(op), wrap(&rewriter))) : failure();
}

static LogicalResult canonicalizeOp(Operation *op, RewriterBase &rewriter) {
  return success(succeeded(removeIdentity(op, rewriter)) || succeeded(resetIdleParameters(op, rewriter)) ||
                 succeeded(rewriteAsItsFileSays(op, rewriter)));
}

//===--- verification -----------------------------------------------------------------------------===//

static LogicalResult verifyOp(Operation *op, const MoeOp &info) {
  if (failed(unwrap(moeVerifyShared(wrap(op))))) return failure();
  return unwrap(info.verify(wrap(op)));
}

} // namespace moe

bool moeOnlyReads(MlirOperation op) {
  std::optional<SmallVector<MemoryEffects::EffectInstance>> effects = getEffectsRecursively(unwrap(op));
  return effects && llvm::all_of(*effects, [](const auto &effect) { return isa<MemoryEffects::Read>(effect.getEffect()); });
}

#define MOE_DEFINE_VERIFY(OP, ID)                                                                                                                    \
  LogicalResult OP::verify() { return ::moe::verifyOp(*this, ::ID); }

// Of ops that have parameters or several optional operands.
#define MOE_DEFINE_BYTECODE(OP, ID)                                                                                                                  \
  LogicalResult OP::readProperties(DialectBytecodeReader &reader, OperationState &state) { return ::moe::readParameters<OP>(reader, state, ::ID); }  \
  void OP::writeProperties(DialectBytecodeWriter &writer) { ::moe::writeParameters(*this, writer); }

#define MOE_DEFINE_OP(OP, ID)                                                                                                                        \
  MOE_DEFINE_VERIFY(OP, ID)                                                                                                                          \
  MOE_DEFINE_BYTECODE(OP, ID)                                                                                                                        \
  void OP::getEffects(::moe::Effects &effects) { ::moe::addEffects(*this, effects); }

#define MOE_DEFINE_DESTINATION_OP(OP, ID)                                                                                                            \
  MOE_DEFINE_OP(OP, ID)                                                                                                                              \
  bool OP::bufferizesToMemoryRead(OpOperand &operand, const bufferization::AnalysisState &) { return ::moe::readsBuffer(operand); }                  \
  bool OP::bufferizesToMemoryWrite(OpOperand &operand, const bufferization::AnalysisState &) { return ::moe::isDestination(operand); }               \
  bool OP::bufferizesToElementwiseAccess(const bufferization::AnalysisState &, ArrayRef<OpOperand *> operands) {                                     \
    return ::moe::accessesElementwise(operands);                                                                                                     \
  }                                                                                                                                                  \
  LogicalResult OP::canonicalize(OP op, PatternRewriter &rewriter) { return ::moe::canonicalizeOp(op, rewriter); }                                   \
  bufferization::AliasingValueList OP::getAliasingValues(OpOperand &operand, const bufferization::AnalysisState &) {                                 \
    if (!::moe::isDestination(operand)) return {};                                                                                                   \
    return {{::moe::resultOf(operand), bufferization::BufferRelation::Equivalent}};                                                                  \
  }                                                                                                                                                  \
  LogicalResult OP::bufferize(RewriterBase &rewriter, const bufferization::BufferizationOptions &options,                                            \
                              bufferization::BufferizationState &state) {                                                                            \
    return ::moe::bufferizeOp(*this, rewriter, options, state);                                                                                      \
  }

#define MOE_DEFINE_EPILOGUE_OP(OP, ID)                                                                                                               \
  MOE_DEFINE_DESTINATION_OP(OP, ID)                                                                                                                  \
  LogicalResult OP::verifyRegions() { return unwrap(moeVerifyEpilogue(wrap(getOperation()))); }

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

#include "EpDialect.h.inc"
#define GET_OP_CLASSES
#include "EpOps.h.inc"

#include "MoeDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "MoeTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "MoeAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "MoeOps.cpp.inc"

#include "EpDialect.cpp.inc"
#define GET_OP_CLASSES
#include "EpOps.cpp.inc"

void moe::MoeDialect::initialize() {
  addInterfaces<Inlining, Versioning>();
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

void ep::EpDialect::initialize() {
  addInterfaces<moe::Inlining, moe::Versioning>();
  addOperations<
#define GET_OP_LIST
#include "EpOps.cpp.inc"
      >();
}

//===--- ops that stand nowhere yet ---------------------------------------------------------------===//

static LogicalResult verifyDetached(Operation *op) {
  std::optional<RegisteredOperationName> info = op->getRegisteredInfo();
  if (llvm::is_contained(op->getOperands(), Value())) return op->emitOpError("has a null operand");
  if (info && failed(info->verifyInvariants(op))) return failure();
  for (Region &region : op->getRegions()) {
    for (Block &block : region) {
      if (!op->hasTrait<OpTrait::NoTerminator>() && (block.empty() || !block.back().hasTrait<OpTrait::IsTerminator>()))
        return op->emitOpError("has a block without a terminator");
      for (Operation &inner : block)
        if (failed(verifyDetached(&inner))) return failure();
    }
  }
  return info ? info->verifyRegionInvariants(op) : success();
}

bool moeVerifyDetached(MlirOperation op) { return succeeded(verifyDetached(unwrap(op))); }

//===--- remarks, which the C API cannot emit -----------------------------------------------------===//

void moeRemark(MlirOperation op, const char *text) { emitRemark(unwrap(op)->getLoc()) << unwrap(op)->getName().getStringRef() << ": " << text; }

//===--- C API ------------------------------------------------------------------------------------===//

MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(Moe, moe, moe::MoeDialect)
MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(Ep, ep, ep::EpDialect)

// A program that has the dialects built in may be given the plugin too: what came first stays.
void moeMlirRegisterDialects(MlirDialectRegistry registry) {
  const std::pair<StringRef, MlirDialectHandle> dialects[] = {{"moe", mlirGetDialectHandle__moe__()}, {"ep", mlirGetDialectHandle__ep__()}};
  for (auto [name, handle] : dialects)
    if (!unwrap(registry)->getDialectAllocator(name)) mlirDialectHandleInsertDialect(handle, registry);
}

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
  if (PassInfo::lookup(pass->name)) return; // as for dialects
  registerPass([pass] { return std::make_unique<TablePass>(pass); });
}
