# What this build has, in one place, so that nobody has to read a log to find out.
message(STATUS "outpost ${PROJECT_VERSION}: build type ${CMAKE_BUILD_TYPE}, sanitizers '${OUTPOST_SANITIZE}'")
message(STATUS "  tests      ${OUTPOST_TESTS}   (OUTPOST_TESTS)")
message(STATUS "  fuzzers    ${OUTPOST_FUZZ}   (OUTPOST_FUZZ)")
message(STATUS "  benchmarks ${OUTPOST_BENCH}   (OUTPOST_BENCH)")
message(STATUS "  libtvm_ffi ${OUTPOST_TVM_FFI_LIBRARY}")
