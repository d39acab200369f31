# Install layout: programs in bin; libtvm_ffi, which is Python's neighbour on a build machine, in a private folder that
# their run path names; the client library with its headers and an exported target; what boards compile against in share.
include(CMakePackageConfigHelpers)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/outpost)

# What a person runs; scripts/demo builds this and no test.
add_custom_target(programs)
foreach(program IN ITEMS rpc_server rpc_worker tracker outpost)
  add_dependencies(programs ${program})
  set_target_properties(${program} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${private_dir};$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endforeach()

install(FILES ${OUTPOST_TVM_FFI_LIBRARY} DESTINATION ${private_dir} COMPONENT server)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/libvm/compat/tvm DESTINATION ${CMAKE_INSTALL_DATADIR}/outpost/include
        COMPONENT server)
foreach(dir IN LISTS tvm_ffi_includes)
  foreach(header IN ITEMS dlpack/dlpack.h tvm/ffi/c_api.h tvm/ffi/extra/c_env_api.h)
    if(EXISTS ${dir}/${header})
      cmake_path(GET header PARENT_PATH folder)
      install(FILES ${dir}/${header} DESTINATION ${CMAKE_INSTALL_DATADIR}/outpost/include/${folder} COMPONENT server)
    endif()
  endforeach()
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/outpost/configs COMPONENT server
        FILES_MATCHING PATTERN "*.toml")
install(EXPORT outpost-targets NAMESPACE outpost:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/outpost COMPONENT client)
file(WRITE ${PROJECT_BINARY_DIR}/outpost-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/outpost-targets.cmake)\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/outpost-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/outpost-config.cmake ${PROJECT_BINARY_DIR}/outpost-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/outpost COMPONENT client)
