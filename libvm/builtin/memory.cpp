// Storages, the tensors cut from them, and copies: vm-builtins.md, sections 1 and 2.
#include <fmt/format.h>
#include <tvm/ffi/dtype.h>

#include "builtin/tables.h"
#include "device/tensor.h"
#include "exec/machine.h"
#include "exec/storage.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::ShapeView;
using tvm::ffi::Tensor;

constexpr std::size_t kAlignment = 64;

const StorageObj* storage_of(const TVMFFIAny& value) {
  static const std::int32_t index = StorageObj::RuntimeTypeIndex();
  if (value.type_index != index) return nullptr;
  return reinterpret_cast<const StorageObj*>(value.v_obj);
}

/// A tensor's part of a storage; keeps the storage alive.
struct Part {
  tvm::ffi::ObjectPtr<tvm::ffi::Object> storage;
  void AllocData(DLTensor* tensor, void* data, std::uint64_t byte_offset) {
    tensor->data = data;
    tensor->byte_offset = byte_offset;
  }
  void FreeData(DLTensor*) noexcept {}
};

void alloc_shape_heap(const Args& args, Any* out) {
  args.need(2);
  const auto& machine = Machine::from(args[0]);
  const auto n = args.integer(1);
  const auto host = machine.devices().back().device;
  if (host.device_type != kDLCPU)
    args.fail("InternalError", "the last device must be the host (cpu), but is " +
                                   device_type_name(host.device_type));
  put(out, empty({n}, {kDLInt, 64, 1}, host));
}

void alloc_storage(const Args& args, Any* out) {
  args.need(5);
  const auto& machine = Machine::from(args[0]);
  const auto* shape = vm::shape_of(args[1]);
  if (shape == nullptr) args.wrong_type(1, "ffi.Shape");
  auto device = args.integer(2);
  const auto devices = std::ssize(machine.devices());
  if (device == -1) device = devices - 1;  // the host
  if (device < 0 || device >= devices)
    args.fail("InternalError",
              fmt::format("device index {} out of range, the VM has {}", device, devices));
  const auto dtype = args.dtype(3);
  const auto scope = args.text(4);
  const auto bytes = checked_bytes({shape->data, shape->size}, dtype);
  const auto element = std::size_t{dtype.bits} / 8 * dtype.lanes;
  std::size_t alignment = kAlignment;
  while (alignment < element) alignment *= 2;
  const auto& pool = machine.pool(static_cast<std::size_t>(device)).pool();
  const auto block = pool->take(bytes, alignment, dtype, scope);
  put(out, Storage{pool, block});
}

void alloc_tensor(const Args& args, Any* out) {
  args.need(4, 5);
  const auto* storage = storage_of(args[0]);
  if (storage == nullptr) args.wrong_type(0, "vm.Storage");
  const auto offset = args.integer(1);
  const auto* shape = vm::shape_of(args[2]);
  if (shape == nullptr) args.wrong_type(2, "ffi.Shape");
  const auto dtype = args.dtype(3);
  const bool whole_bytes = dtype.bits % 8 == 0 && (dtype.bits & (dtype.bits - 1)) == 0;
  if (!whole_bytes && !(dtype.code == kDLUInt && dtype.bits == 1))
    args.fail("InternalError", "cannot cut a tensor of " +
                                   std::string{tvm::ffi::DLDataTypeToString(dtype)} +
                                   " from a storage");
  const auto bytes = checked_bytes({shape->data, shape->size}, dtype);
  const auto all = storage->block.bytes;
  if (offset < 0 || static_cast<std::uint64_t>(offset) > all ||
      bytes > all - static_cast<std::uint64_t>(offset))
    args.fail("InternalError", fmt::format("a tensor of {} bytes at byte {} does not fit its "
                                           "storage of {} bytes",
                                           bytes, offset, all));
  Part part{tvm::ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<tvm::ffi::Object>(args[0].v_obj)};
  put(out, Tensor::FromNDAlloc(std::move(part), ShapeView{shape->data, shape->size}, dtype,
                               storage->pool->device(), storage->block.data,
                               static_cast<std::uint64_t>(offset)));
}

void to_device(const Args& args, Any* out) {
  args.need(3, 4);
  const auto& from = args.tensor(0);
  const DLDevice device{static_cast<DLDeviceType>(args.integer(1)),
                        static_cast<std::int32_t>(args.integer(2))};
  const auto scope = args.size() == 4 ? args.text(3) : std::string_view{};
  if (device.device_type == kDLCPU && !scope.empty() && scope != "global")
    args.fail("InternalError", fmt::format("cpu has no memory scope '{}'", scope));
  auto to = empty({from.shape, static_cast<std::size_t>(from.ndim)}, from.dtype, device, scope);
  copy_tensor(from, *to.GetDLTensorPtr());
  device_api(from.device.device_type).synchronize(from.device, nullptr);
  device_api(device.device_type).synchronize(device, nullptr);
  put(out, std::move(to));
}

void ensure_zero_offset(const Args& args, Any* out) {
  args.need(1);
  const auto& t = args.tensor(0);
  if (t.byte_offset == 0) return put(out, keep(args[0]));
  const bool plain = device_api(t.device.device_type).plain_pointers();
  if (!plain || t.byte_offset % kAlignment != 0) return put(out, clone(t));
  const auto owner = args.owned_tensor(0);
  put(out, view_of(owner, owner.shape(), owner.dtype()));
}

void clear(const Args& args, Any*) {
  args.need(0);
  MemoryPool::clear_all();
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.alloc_shape_heap(vm, n)", alloc_shape_heap>(),
    builtin<"vm.builtin.alloc_storage(vm, shape, device, dtype, scope)", alloc_storage>(),
    builtin<"vm.builtin.alloc_tensor(storage, offset, shape, dtype[, scope])", alloc_tensor>(),
    builtin<"vm.builtin.to_device(tensor, type, id[, scope])", to_device>(),
    builtin<"vm.builtin.ensure_zero_offset(tensor)", ensure_zero_offset>(),
    builtin<"vm.builtin.memory_manager.clear()", clear>(),
};

}  // namespace

std::span<const Builtin> memory_builtins() {
  return kTable;
}
}  // namespace outpost::vm
