# Compiler and linker flags of our own targets; linked PRIVATE, so that nobody inherits them.
# -Wrestrict: g++ 12 warns of "x" + string at -O3, which is its own fault (gcc bug 105651).
add_library(outpost_options INTERFACE)
target_compile_options(outpost_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${OUTPOST_WERROR}>:-Werror>)
if(OUTPOST_SANITIZE)
  target_compile_options(outpost_options INTERFACE -fsanitize=${OUTPOST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(outpost_options INTERFACE -fsanitize=${OUTPOST_SANITIZE})
  if(OUTPOST_SANITIZE STREQUAL "thread")  # tsan does not know fences; Asio's scheduler locks anyway
    target_compile_definitions(outpost_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    target_compile_options(outpost_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
if(OUTPOST_FUZZ)
  target_compile_options(outpost_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# outpost_library(name SOURCES ... LINK ... [PRIVATE_LINK ...]): a static part with its outpost:: alias.
function(outpost_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(outpost_${name} STATIC ${arg_SOURCES})
  add_library(outpost::${name} ALIAS outpost_${name})
  target_link_libraries(outpost_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK} outpost_options)
endfunction()
