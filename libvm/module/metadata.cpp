#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>

#include "module/loaders.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

using Object = ffi::json::Object;

ffi::Any field(const Object& object, const char* name) {
  const ffi::String key{name};
  if (object.count(key) == 0)
    TVM_FFI_THROW(KeyError) << "kernel description lacks '" << name << "'";
  return object.at(key);
}

ffi::Map<ffi::String, ffi::Any> description(const Object& in) {
  ffi::Array<ffi::Any> types;
  for (const auto& type : field(in, "arg_types").cast<ffi::Array<ffi::String>>())
    types.push_back(ffi::StringToDLDataType(type));
  const bool old_name = in.count(ffi::String{"launch_param_tags"}) == 0;
  const auto tags = field(in, old_name ? "thread_axis_tags" : "launch_param_tags");
  ffi::Any extra = ffi::Array<ffi::Any>{};
  if (in.count(ffi::String{"arg_extra_tags"}) != 0) extra = field(in, "arg_extra_tags");
  ffi::Map<ffi::String, ffi::Any> out;
  out.Set("name", field(in, "name").cast<ffi::String>());
  out.Set("arg_types", types);
  out.Set("launch_param_tags", tags.cast<ffi::Array<ffi::String>>());
  out.Set("arg_extra_tags", extra.cast<ffi::Array<std::int64_t>>());
  return out;
}

}  // namespace

ffi::Map<ffi::String, ffi::Map<ffi::String, ffi::Any>> load_metadata(const ffi::String& json) {
  ffi::String error;
  const auto parsed = ffi::json::Parse(json, &error);
  if (!error.empty()) TVM_FFI_THROW(ValueError) << "kernel descriptions are no JSON: " << error;
  ffi::Map<ffi::String, ffi::Map<ffi::String, ffi::Any>> out;
  for (const auto& [name, value] : field(parsed.cast<Object>(), "func_info").cast<Object>())
    out.Set(name.cast<ffi::String>(), description(value.cast<Object>()));
  return out;
}

}  // namespace outpost::vm
