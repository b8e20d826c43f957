# What other projects find an installed moe-mlir by: a CMake package and pkg-config files. The targets' own folders install the targets.
#
# Component `runtime` needs nothing of MLIR; component `compiler` comes on top of it. The folders are fixed, because moe-compile looks for
# libmoert.so in ../lib, and so does the Python package.

include(CMakePackageConfigHelpers)
set(package lib/cmake/MoeMlir)

# moe_install_pkg_config(NAME COMPONENT)
function(moe_install_pkg_config name component)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/cmake/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/cmake/${name}.pc DESTINATION lib/pkgconfig COMPONENT ${component})
endfunction()

set(MOE_CAPI_NAMES)  # MLIRCAPIIR ...
foreach(archive IN LISTS MOE_MLIR_CAPI_ALL)
  get_filename_component(name ${archive} NAME_WE)
  string(REGEX REPLACE "^lib" "" name ${name})
  list(APPEND MOE_CAPI_NAMES ${name})
endforeach()
list(TRANSFORM MOE_CAPI_NAMES PREPEND -l OUTPUT_VARIABLE MOE_CAPI_FLAGS)
list(JOIN MOE_CAPI_FLAGS " " MOE_CAPI_FLAGS)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/MoeMlirConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/MoeMlirConfig.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/MoeMlirConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/MoeMlirConfig.cmake ${CMAKE_BINARY_DIR}/cmake/MoeMlirConfigVersion.cmake DESTINATION ${package} COMPONENT runtime)
install(EXPORT MoeMlirRuntime NAMESPACE MoeMlir:: DESTINATION ${package} COMPONENT runtime)
moe_install_pkg_config(moert runtime)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/moert DESTINATION python COMPONENT runtime FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/moe-mlir COMPONENT runtime)

if(MOE_ENABLE_COMPILER)
  install(EXPORT MoeMlirCompiler NAMESPACE MoeMlir:: DESTINATION ${package} COMPONENT compiler)
  moe_install_pkg_config(moe-mlir compiler)
endif()
