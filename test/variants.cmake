# The same tests in other builds, each in a folder of its own: with sanitizers, and with another compiler. They make up the better part of the time.

set(variant_options -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER} -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
  -DPython3_EXECUTABLE=${Python3_EXECUTABLE} -DMOE_TEST_PYTHON=${MOE_TEST_PYTHON} -DMOE_TEST_VARIANTS=OFF)

# moe_add_variant(NAME TIMEOUT OPTION...): test variant-NAME configures, builds and tests the project with these options.
function(moe_add_variant name timeout)
  add_test(NAME variant-${name} COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/variants/${name}
    --build-generator Ninja --build-options ${variant_options} ${ARGN} --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure -j2)
  set_tests_properties(variant-${name} PROPERTIES TIMEOUT ${timeout} PROCESSORS 2)
endfunction()

# Clang reads the C of the CUDA backend and of the tests on devices too; kernels are compiled by nvcc, with the compiler that it chooses.
set(cuda -DMOE_ENABLE_CUDA=${MOE_ENABLE_CUDA} -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER} -DCMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER})
moe_add_variant(clang 1200 -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 ${cuda})
moe_add_variant(address-undefined 1200 -DMOE_SANITIZE=address,undefined)
moe_add_variant(thread 1200 -DMOE_SANITIZE=thread -DMOE_ENABLE_COMPILER=OFF)
