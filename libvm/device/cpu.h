#pragma once
#include "device/device_api.h"

namespace outpost::vm {
/// The host itself; built in. Every id exists and is the same memory.
DeviceApi& cpu_device();
}  // namespace outpost::vm
