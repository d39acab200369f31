#pragma once

namespace outpost::vm {
/// Global functions about devices and tensors: runtime.GetDeviceAttr, runtime.Device_*,
/// runtime.TVMTensor*, runtime.RuntimeEnabled, device_api.*, __tvm_set_device.
void register_device_functions();
}  // namespace outpost::vm
