# Everything that is a .mlir or .test file: FileCheck's and -verify-diagnostics' tests of the compiler side, and graphs that are compiled and run.
# One ctest for each room; lit names the files that fail.

find_program(MOE_LIT lit HINTS ${MOE_LLVM_DIR}/bin REQUIRED)
set(MOE_LIT_SOURCE ${CMAKE_CURRENT_LIST_DIR})
set(MOE_LIT_BINARY ${CMAKE_BINARY_DIR}/test)
configure_file(${MOE_LIT_SOURCE}/lit.site.cfg.py.in ${MOE_LIT_BINARY}/lit.site.cfg.py @ONLY)

foreach(room ops passes bytecode tools plugin kinds)
  add_test(NAME lit-${room} COMMAND ${MOE_LIT} -sv ${MOE_LIT_BINARY}/${room})
  set_tests_properties(lit-${room} PROPERTIES TIMEOUT 900)
endforeach()
