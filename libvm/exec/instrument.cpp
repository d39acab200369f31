#include "exec/instrument.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/string.h>

#include <vector>

#include "exec/values.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::AnyView;

class Instrument final : public CallObserver {
 public:
  explicit Instrument(tvm::ffi::Function f) : f_{std::move(f)} {}

  bool before(const Call& call) override {
    const Any answer = ask(call, true, kNone);
    const auto& a = raw(answer);
    return !((a.type_index == kTVMFFIInt || a.type_index == kTVMFFIBool) && a.v_int64 == 1);
  }
  void after(const Call& call, const TVMFFIAny& result) override { ask(call, false, result); }

 private:
  Any ask(const Call& call, bool before, const TVMFFIAny& result) const {
    std::vector<AnyView> args;
    std::vector<Any> texts;  // data types arrive as text
    args.reserve(static_cast<std::size_t>(call.size) + 4);
    texts.reserve(static_cast<std::size_t>(call.size) + 1);
    texts.emplace_back(tvm::ffi::String{call.name});
    args.push_back(AnyView::CopyFromTVMFFIAny(call.function));
    args.push_back(texts.back());
    args.push_back(before);
    args.push_back(AnyView::CopyFromTVMFFIAny(result));
    for (std::int32_t i = 0; i < call.size; ++i) {
      if (call.args[i].type_index == kTVMFFIDataType) {
        texts.emplace_back(tvm::ffi::DLDataTypeToString(call.args[i].v_dtype));
        args.push_back(texts.back());
      } else {
        args.push_back(AnyView::CopyFromTVMFFIAny(call.args[i]));
      }
    }
    Any answer;
    const auto f = f_;  // it may take itself out of the VM
    f.CallPacked(args.data(), static_cast<std::int32_t>(args.size()), &answer);
    return answer;
  }

  tvm::ffi::Function f_;
};

}  // namespace

std::unique_ptr<CallObserver> make_instrument(tvm::ffi::Function f) {
  return std::make_unique<Instrument>(std::move(f));
}

}  // namespace outpost::vm
