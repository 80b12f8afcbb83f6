# cmake --install puts the command, the shared library, its headers and the find_package files in place.
include(CMakePackageConfigHelpers)
install(TARGETS ctxzip EXPORT ctxzip-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ctxzip_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/ctxzip DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ctxzip-targets NAMESPACE ctxzip:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ctxzip)
write_basic_package_version_file(ctxzip-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/ctxzip-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ctxzip-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ctxzip)
