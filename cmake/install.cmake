# cmake --install: the program, the library in both forms, its header and its pkg-config file; cpack -G DEB packs the same.
install(TARGETS snug RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS snug_static snug_shared ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/snug.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The file finds its prefix from its own place, so that --prefix and packages need no other file.
file(RELATIVE_PATH SNUG_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/snug.pc.in snug.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/snug.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME snug)
set(CPACK_PACKAGE_CONTACT "The snug authors <snug@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
