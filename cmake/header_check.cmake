# SPDX-License-Identifier: Apache-2.0
# ciuic_check_headers(<target> <folder>...): a target that compiles every header of the folders alone,
# so that each includes what it needs. Public headers see nothing but include/.

function(ciuic_check_headers target)
  set(public "")
  set(inner "")
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/${folder}
         ${folder}/*.h)
    foreach(header IN LISTS headers)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/header_check/${folder}/${header}.cc)
      # Twice: without `#pragma once` the second is an error.
      set(text "#include \"${header}\"\n#include \"${header}\"\n")
      file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
      if(folder STREQUAL include)
        list(APPEND public ${source})
      else()
        list(APPEND inner ${source})
      endif()
    endforeach()
  endforeach()

  add_library(${target}_public OBJECT EXCLUDE_FROM_ALL ${public})
  target_include_directories(${target}_public PRIVATE include)
  add_library(${target}_inner OBJECT EXCLUDE_FROM_ALL ${inner})
  target_include_directories(${target}_inner PRIVATE src include)
  target_link_libraries(${target}_inner PRIVATE fmt::fmt hwy::hwy)
  foreach(part IN ITEMS public inner)  # whether it compiles is all that is asked
    target_compile_options(${target}_${part} PRIVATE -O0 -g0)
  endforeach()
  add_custom_target(${target})
  add_dependencies(${target} ${target}_public ${target}_inner)
endfunction()
