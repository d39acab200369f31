#include "module/library_bin.h"

#include <fmt/format.h>

#include <cstddef>

namespace outpost::vm {
namespace {

Error malformed(std::string text) {
  return Error{Code::malformed, std::move(text)};
}

Result<std::vector<std::uint64_t>> read_numbers(ByteReader& in, std::string_view what) {
  OUTPOST_TRY(const auto n, in.count(sizeof(std::uint64_t), what));
  std::vector<std::uint64_t> out;
  out.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    OUTPOST_TRY(const auto value, in.le<std::uint64_t>(what));
    out.push_back(value);
  }
  return out;
}

/// Takes away modules without imports until none is left: what stays imports itself.
Result<> check_acyclic(const std::vector<EmbeddedModule>& modules) {
  std::vector<std::size_t> open(modules.size());
  std::vector<std::vector<std::size_t>> importers(modules.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    open[i] = modules[i].imports.size();
    if (open[i] == 0) ready.push_back(i);
    for (const auto child : modules[i].imports) importers[child].push_back(i);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const auto i = ready.back();
    ready.pop_back();
    ++done;
    for (const auto parent : importers[i])
      if (--open[parent] == 0) ready.push_back(parent);
  }
  if (done != modules.size()) return malformed("embedded modules import each other in a circle");
  return {};
}

}  // namespace

Result<std::vector<EmbeddedModule>> read_library_bin(Bytes bin) {
  ByteReader outer{bin};
  OUTPOST_TRY(const auto body, outer.sized("embedded modules"));
  ByteReader in{body};
  OUTPOST_TRY(const auto starts, read_numbers(in, "import row starts"));
  OUTPOST_TRY(const auto children, read_numbers(in, "import children"));
  if (starts.size() < 2) return malformed("no embedded module, not even the root");
  if (starts.front() != 0 || starts.back() != children.size())
    return malformed(fmt::format("import rows cover [{}, {}) of {} children", starts.front(),
                                 starts.back(), children.size()));
  std::vector<EmbeddedModule> modules(starts.size() - 1);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (starts[i] > starts[i + 1] || starts[i + 1] > children.size())
      return malformed(fmt::format("import row {} is [{}, {}) of {} children", i, starts[i],
                                   starts[i + 1], children.size()));
    for (auto at = starts[i]; at < starts[i + 1]; ++at) {
      if (children[at] >= modules.size())
        return malformed(
            fmt::format("module {} imports module {} of {}", i, children[at], modules.size()));
      modules[i].imports.push_back(children[at]);
    }
  }
  for (auto& module : modules) {
    OUTPOST_TRY(const auto kind, in.sized("module kind"));
    module.kind = as_text(kind);
    if (module.kind == "_lib") continue;
    OUTPOST_TRY(module.bytes, in.sized("module bytes"));
  }
  OUTPOST_CHECK(check_acyclic(modules));
  return modules;
}

}  // namespace outpost::vm
