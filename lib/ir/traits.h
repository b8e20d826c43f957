//===- traits.h - traits of our ops that libMLIR.so looks for ---------------------------------------===//
//
// MLIR makes the ID of a trait from the name that the compiler gives to Trait<Empty>, where Empty is a type local to a function. GCC and Clang do not
// agree on that name, and libMLIR.so is Clang's work: in a dialect that GCC has compiled it would find no terminator. So the traits that it must find
// have their IDs by Clang's name. Included before all of MLIR.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_IR_TRAITS_H
#define MOE_IR_TRAITS_H

#include "mlir/Support/TypeID.h"

namespace moe {
struct NamedTypeID : mlir::detail::FallbackTypeIDResolver {
  static mlir::TypeID get(llvm::StringRef name) { return registerImplicitTypeID(name); }
};
} // namespace moe

#define MOE_NAME_TRAIT(TRAIT)                                                                                                                        \
  namespace mlir {                                                                                                                                   \
  namespace OpTrait {                                                                                                                                \
  template <typename ConcreteType> class TRAIT;                                                                                                      \
  }                                                                                                                                                  \
  template <> inline TypeID TypeID::get<OpTrait::TRAIT>() {                                                                                          \
    static TypeID id = ::moe::NamedTypeID::get("mlir::OpTrait::" #TRAIT "<Empty>");                                                                  \
    return id;                                                                                                                                       \
  }                                                                                                                                                  \
  }

MOE_NAME_TRAIT(HasRecursiveMemoryEffects)
MOE_NAME_TRAIT(IsTerminator)

#undef MOE_NAME_TRAIT

#endif
