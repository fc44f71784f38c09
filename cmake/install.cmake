# SPDX-License-Identifier: Apache-2.0
# What is installed, and where: for C++ users (find_package(ciuic), pkg-config), or into a wheel.

if(DEFINED SKBUILD)
  # One folder holds the Python module, the core and what it is linked with; each finds the others
  # there, whatever the user's machine has. No symbolic links in a wheel: the files themselves, under
  # the names that the loader asks for.
  set_target_properties(ciuic PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ciuic LIBRARY DESTINATION ciuic COMPONENT python NAMELINK_SKIP)
  foreach(library IN ITEMS fmt::fmt hwy::hwy)
    get_target_property(type ${library} TYPE)
    if(type STREQUAL SHARED_LIBRARY)
      install(FILES $<TARGET_FILE:${library}> DESTINATION ciuic COMPONENT python
              RENAME $<TARGET_SONAME_FILE_NAME:${library}>)
    endif()
  endforeach()
  return()
endif()

include(CMakePackageConfigHelpers)

install(TARGETS ciuic EXPORT ciuic-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cxx)
install(DIRECTORY include/ciuic DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cxx
        FILES_MATCHING PATTERN "*.h")

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ciuic)
install(EXPORT ciuic-targets NAMESPACE ciuic:: DESTINATION ${config_folder} COMPONENT cxx)
configure_package_config_file(cmake/ciuic-config.cmake.in ciuic-config.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(ciuic-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ciuic-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ciuic-config-version.cmake
        DESTINATION ${config_folder} COMPONENT cxx)

file(RELATIVE_PATH CIUIC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ciuic.pc.in ciuic.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ciuic.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cxx)
