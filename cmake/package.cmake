# Install layout: programs in bin, libtvm_ffi in a private folder that their run path names.

# What a person runs; scripts/demo builds this and no test.
add_custom_target(programs)
foreach(program IN ITEMS rpc_server rpc_worker tracker outpost)
  if(TARGET ${program})
    add_dependencies(programs ${program})
  endif()
endforeach()
