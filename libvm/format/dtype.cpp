#include <fmt/format.h>

#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {

struct Named {
  int code;
  const char* name;
  bool with_bits;
};
constexpr Named kNames[] = {
    {kDLInt, "int", true},
    {kDLUInt, "uint", true},
    {kDLFloat, "float", true},
    {kDLBfloat, "bfloat", true},
    {kDLComplex, "complex", true},
    {kDLOpaqueHandle, "handle", false},
    {kDLBool, "bool", false},
    {kDLFloat8_e3m4, "float8_e3m4", false},
    {kDLFloat8_e4m3, "float8_e4m3", false},
    {kDLFloat8_e4m3b11fnuz, "float8_e4m3b11fnuz", false},
    {kDLFloat8_e4m3fn, "float8_e4m3fn", false},
    {kDLFloat8_e4m3fnuz, "float8_e4m3fnuz", false},
    {kDLFloat8_e5m2, "float8_e5m2", false},
    {kDLFloat8_e5m2fnuz, "float8_e5m2fnuz", false},
    {kDLFloat8_e8m0fnu, "float8_e8m0fnu", false},
    {kDLFloat6_e2m3fn, "float6_e2m3fn", false},
    {kDLFloat6_e3m2fn, "float6_e3m2fn", false},
    {kDLFloat4_e2m1fn, "float4_e2m1fn", false},
};

}  // namespace

std::string dtype_text(DLDataType dtype) {
  auto text = fmt::format("dtype({}, {})", dtype.code, dtype.bits);
  for (const auto& known : kNames)
    if (known.code == dtype.code)
      text = known.with_bits ? fmt::format("{}{}", known.name, dtype.bits) : known.name;
  return dtype.lanes == 1 ? text : fmt::format("{}x{}", text, dtype.lanes);
}

}  // namespace outpost::vm
