#pragma once
#include <cstdint>

namespace outpost::vm {

/// TVMBackendAllocWorkspace: scratch memory for a kernel, from the calling thread's pool: whole
/// pages, aligned to 64. Null with a raised error when there is none.
void* allocate_workspace(int device_type, int device_id, std::uint64_t bytes);
/// TVMBackendFreeWorkspace, on the thread that allocated; -1 for a pointer that it did not.
int free_workspace(int device_type, int device_id, void* data);

}  // namespace outpost::vm
