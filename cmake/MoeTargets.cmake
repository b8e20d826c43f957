# What all targets share: warnings, sanitizers, and the sources that are generated from the dialects' .td.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(MOE_LLVM_DIR /usr/lib/llvm-22 CACHE PATH "Where LLVM and MLIR 22.1 are installed")
set(MOE_PREPARED_DIR "" CACHE PATH "What tools/check-gpu --prepare has made: the dialects' tables, for machines without LLVM")
if(NOT MOE_PREPARED_DIR)
  find_program(MOE_LLVM_TBLGEN llvm-tblgen HINTS ${MOE_LLVM_DIR}/bin REQUIRED)
elseif(MOE_ENABLE_COMPILER)
  message(FATAL_ERROR "MOE_PREPARED_DIR is for machines without MLIR: it needs -DMOE_ENABLE_COMPILER=OFF")
endif()

# Contraction would change bits: every fused step in this project is an explicit fmaf.
add_library(moe_options INTERFACE)
target_compile_options(moe_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -ffp-contract=off>)
if(MOE_SANITIZE)
  target_compile_options(moe_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=${MOE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(moe_options INTERFACE -fsanitize=${MOE_SANITIZE})
endif()
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND MOE_SANITIZE MATCHES thread)
  target_compile_options(moe_options INTERFACE -Wno-error=tsan)  # gcc warns that fences are not instrumented
endif()

set(MOE_DIALECTS moe ep)
file(GLOB MOE_TD CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/ir/*.td ${CMAKE_SOURCE_DIR}/ops/*/*.td)  # they include each other
set(MOE_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${MOE_GENERATED_DIR}/moert ${MOE_GENERATED_DIR}/moe-mlir-c ${MOE_GENERATED_DIR}/lib/ir)
foreach(dialect IN LISTS MOE_DIALECTS)
  set(td ${CMAKE_SOURCE_DIR}/ops/${dialect}/${dialect}.td)
  set(json ${MOE_GENERATED_DIR}/${dialect}.json)
  if(MOE_PREPARED_DIR)
    set(json ${MOE_PREPARED_DIR}/generated/${dialect}.json)
  else()
    add_custom_command(OUTPUT ${json}
      COMMAND ${MOE_LLVM_TBLGEN} -I ${MOE_LLVM_DIR}/include -I ${CMAKE_SOURCE_DIR} --dump-json ${td} -o ${json}
      DEPENDS ${MOE_TD} VERBATIM)
  endif()
  list(APPEND MOE_DIALECT_JSON ${json})
endforeach()

# moe_generate(WHAT OUTPUT): a file under build/generated; see cmake/generate.py.
function(moe_generate what output)
  add_custom_command(OUTPUT ${MOE_GENERATED_DIR}/${output}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/generate.py ${what} ${MOE_GENERATED_DIR}/${output} ${MOE_DIALECT_JSON}
    DEPENDS ${CMAKE_SOURCE_DIR}/cmake/generate.py ${MOE_DIALECT_JSON} VERBATIM)
endfunction()
moe_generate(ops.h moert/ops.h)
moe_generate(host.h host.h)
moe_generate(cuda_ops.h cuda_ops.h)
moe_generate(cuda_ops.inc cuda_ops.inc)
moe_generate(runtime.inc runtime.inc)
moe_generate(ir.h lib/ir/ops.inc)
moe_generate(ir.c ops.c)
moe_generate(capi.h moe-mlir-c/Ops.h)
moe_generate(capi.inc capi.inc)
# The instances that kernels/*/specializations.def list.
file(GLOB specializations CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*/specializations.def)
add_custom_command(OUTPUT ${MOE_GENERATED_DIR}/kernels.inc
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/kernel_table.py ${MOE_GENERATED_DIR}/kernels.inc ${MOE_DIALECT_JSON} -- ${specializations}
  DEPENDS ${CMAKE_SOURCE_DIR}/cmake/kernel_table.py ${CMAKE_SOURCE_DIR}/cmake/generate.py ${MOE_DIALECT_JSON} ${specializations} VERBATIM)
add_custom_target(moe_generated_runtime DEPENDS ${MOE_GENERATED_DIR}/moert/ops.h ${MOE_GENERATED_DIR}/host.h ${MOE_GENERATED_DIR}/runtime.inc
  ${MOE_GENERATED_DIR}/cuda_ops.h ${MOE_GENERATED_DIR}/cuda_ops.inc ${MOE_GENERATED_DIR}/kernels.inc)
add_custom_target(moe_generated_tables DEPENDS ${MOE_GENERATED_DIR}/lib/ir/ops.inc ${MOE_GENERATED_DIR}/ops.c
  ${MOE_GENERATED_DIR}/moe-mlir-c/Ops.h ${MOE_GENERATED_DIR}/capi.inc)
