// `run` and `time`: arguments over, one call or a measurement, results back.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "outpost/commands.h"
#include "outpost/npy.h"
#include "outpost/progress.h"

namespace outpost::app {
namespace {

using client::Session;
using client::Tensor;
using client::Value;

template <class T>
T usage(Result<T> result) {
  if (result.has_error()) throw UsageError{result.error().text};
  return *std::move(result);
}

[[noreturn]] void fail(const std::string& text) {
  throw client::RpcError{client::Code::io, text};
}

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  if (!in) fail(fmt::format("cannot read '{}'", path));
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

Tensor load_npy(const client::RemoteDevice& device, const std::string& path) {
  const auto file = read_file(path);
  const auto head = parse_npy(file);
  if (head.has_error()) fail(fmt::format("cannot read '{}': {}", path, head.error().text));
  auto out = device.empty(head->shape, head->dtype);
  out.copy_from(Bytes{file}.subspan(head->data_offset));
  return out;
}

/// Under its name only when it is whole.
void save_npy(const Tensor& tensor, const std::string& path) {
  std::vector<std::byte> data(tensor.byte_size());
  tensor.copy_to(data);
  const auto head = npy_head(tensor.dtype(), tensor.shape());
  const auto part = path + ".part";
  {
    std::ofstream out{part, std::ios::binary};
    out << head << as_text(data);
    out.flush();
    if (!out) {
      std::remove(part.c_str());
      fail(fmt::format("cannot write '{}'", path));
    }
  }
  std::filesystem::rename(part, path);
}

/// "float32[2,3]", the notation of inputs.
std::string describe(const Tensor& tensor) {
  return fmt::format("{}[{}]", tensor.dtype().name(), fmt::join(tensor.shape(), ","));
}

struct Describe {
  const Value& value;
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const Value::Blob& v) const { return fmt::format("{} bytes", v.size()); }
  std::string operator()(const Tensor& v) const { return describe(v); }
  std::string operator()(client::DataType v) const { return v.name(); }
  std::string operator()(client::Device v) const { return client::name(v); }
  std::string operator()(const auto&) const { return std::string{value.kind()}; }
};

std::string describe(const Value& value) {
  return std::visit(Describe{value}, value.storage());
}

/// What a command line asks for, once on the server.
class Job {
 public:
  Job(const Session& session, const RunPlan& plan)
      : session_{session},
        command_{plan.command},
        inputs_{plan.inputs},
        outputs_{plan.outputs},
        device_{device_of(session, plan.command.device)} {}

  void prepare() {
    load();
    std::uint64_t seed = command_.seed;
    for (const auto& input : inputs_) values_.push_back(make(input, seed++));
    for (const auto& output : outputs_)
      if (output.filled)
        values_.emplace_back(
            Value::Storage{device_.empty(output.filled->shape, output.filled->dtype)});
  }

  void run() {
    const auto result = function().call(arguments());
    std::vector<Value> results = flatten(result);
    std::size_t next_result = 0;
    std::size_t next_filled = inputs_.size();
    for (const auto& output : outputs_) {
      if (!output.filled && next_result == results.size())
        fail(fmt::format("there is no result for output '{}': the function returned {}",
                         output.path, describe(result)));
      const auto& value = output.filled ? values_[next_filled++] : results[next_result++];
      if (!output.path.empty()) save_npy(value.as_tensor(), output.path);
    }
    report(result, results);
  }

  void measure() {
    client::EvaluatorOptions o;
    o.device = device_.device();
    o.number = command_.number;
    o.repeat = command_.repeat;
    o.min_repeat_ms = command_.min_repeat_ms;
    o.limit_zero_time_iterations = command_.limit_zero_time_iterations;
    o.cooldown_interval_ms = command_.cooldown_interval_ms;
    o.repeats_to_cooldown = command_.repeats_to_cooldown;
    o.cache_flush_bytes = command_.cache_flush_bytes;
    o.preproc = command_.preproc;
    const auto t = module_.time_evaluator(command_.function, o).measure(arguments());
    if (command_.json) {
      fmt::print("{}\n", nlohmann::json{{"function", command_.function},
                                        {"seconds", t.seconds},
                                        {"mean", t.mean()},
                                        {"median", t.median()},
                                        {"min", t.min()},
                                        {"max", t.max()},
                                        {"std", t.deviation()}}
                             .dump());
      return;
    }
    fmt::print("{:>12} {:>12} {:>12} {:>12} {:>12}\n", "mean (ms)", "median (ms)", "min (ms)",
               "max (ms)", "std (ms)");
    fmt::print("{:12.6f} {:12.6f} {:12.6f} {:12.6f} {:12.6f}\n", t.mean() * 1e3, t.median() * 1e3,
               t.min() * 1e3, t.max() * 1e3, t.deviation() * 1e3);
  }

 private:
  static client::RemoteDevice device_of(const Session& session, const std::string& text) {
    const auto colon = text.find(':');
    std::int32_t id = 0;
    if (colon != std::string::npos) {
      const auto* end = text.data() + text.size();
      const auto [stop, ec] = std::from_chars(text.data() + colon + 1, end, id);
      if (ec != std::errc{} || stop != end || id < 0)
        throw UsageError{fmt::format("'{}' is no device such as cuda:1", text)};
    }
    try {
      return session.device(text.substr(0, colon), id);
    } catch (const client::RpcError& e) {
      throw UsageError{e.what()};
    }
  }

  /// The library, or the VM in it when the function is one of the VM.
  void load() {
    const auto name = std::filesystem::path{command_.library}.filename().string();
    {
      ProgressBar bar{command_.library};
      session_.upload_file(command_.library, name, bar.options());
    }
    module_ = session_.load_module(name);
    if (module_.find_function(command_.function)) return;
    const auto loader = module_.find_function("vm_load_executable");
    if (!loader) (void)function();  // says what is missing
    module_ = loader().as_module();
    constexpr std::int64_t kCpu = 1;
    constexpr std::int64_t kPooled = 2;
    const auto device = device_.device();
    const auto initialize = module_.get_function("vm_initialization");
    if (device.type == kCpu)
      initialize(device.type, device.id, kPooled);
    else
      initialize(device.type, device.id, kPooled, kCpu, 0, kPooled);
  }

  client::Function function() const { return module_.get_function(command_.function); }

  Value make(const InputSpec& input, std::uint64_t seed) const {
    if (const auto* file = std::get_if<FileSpec>(&input))
      return Value{Value::Storage{load_npy(device_, file->path)}};
    if (const auto* spec = std::get_if<TensorSpec>(&input)) {
      auto tensor = device_.empty(spec->shape, spec->dtype);
      tensor.copy_from(random_elements(*spec, seed));
      return Value{Value::Storage{std::move(tensor)}};
    }
    if (const auto* whole = std::get_if<std::int64_t>(&input)) return Value{*whole};
    if (const auto* real = std::get_if<double>(&input)) return Value{*real};
    return Value{std::get<std::string>(input)};
  }

  std::vector<client::Argument> arguments() const { return {values_.begin(), values_.end()}; }

  /// A tuple, which the client can only hold, item by item; nested ones in order.
  std::vector<Value> flatten(const Value& value) const {
    constexpr std::int32_t kArray = 71;
    const auto* object = std::get_if<client::Object>(&value.storage());
    if (object == nullptr || object->type_index() != kArray) return {value};
    const auto size = session_.get_function("ffi.ArraySize")(*object).as_int();
    const auto item = session_.get_function("ffi.ArrayGetItem");
    std::vector<Value> out;
    for (std::int64_t i = 0; i < size; ++i)
      for (auto& inner : flatten(item(*object, i))) out.push_back(std::move(inner));
    return out;
  }

  void report(const Value& result, const std::vector<Value>& results) const {
    std::vector<std::string> texts;
    for (const auto& r : results) texts.push_back(describe(r));
    if (command_.json) {
      fmt::print("{}\n",
                 nlohmann::json{{"function", command_.function}, {"results", texts}}.dump());
      return;
    }
    if (!result.is_none()) fmt::print("{}\n", fmt::join(texts, "\n"));
  }

  const Session& session_;
  const RunCommand& command_;
  const std::vector<InputSpec>& inputs_;
  const std::vector<OutputSpec>& outputs_;
  client::RemoteDevice device_;
  client::Module module_;
  std::vector<Value> values_;
};

}  // namespace

RunPlan plan_run(const RunCommand& command) {
  RunPlan out{command, {}, {}};
  for (const auto& text : command.inputs) out.inputs.push_back(usage(parse_input(text)));
  for (const auto& text : command.outputs) out.outputs.push_back(usage(parse_output(text)));
  return out;
}

void run_function(const Session& session, const RunPlan& plan) {
  Job job{session, plan};
  job.prepare();
  if (plan.command.measure)
    job.measure();
  else
    job.run();
}

}  // namespace outpost::app
