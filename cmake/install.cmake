# SPDX-License-Identifier: Apache-2.0
# What is installed, and where: for C++ users (find_package(ciuic), pkg-config), or into a wheel.

if(DEFINED SKBUILD)
  # One folder holds the Python module, the core and Highway's dispatcher; each finds the others there.
  set_target_properties(ciuic PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ciuic LIBRARY DESTINATION ciuic COMPONENT python NAMELINK_SKIP)
  get_target_property(hwy_type hwy::hwy TYPE)
  if(hwy_type STREQUAL SHARED_LIBRARY)
    # No symbolic links in a wheel: the file itself, under the name that the loader asks for.
    install(FILES $<TARGET_FILE:hwy::hwy> DESTINATION ciuic COMPONENT python
            RENAME $<TARGET_SONAME_FILE_NAME:hwy::hwy>)
  endif()
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
