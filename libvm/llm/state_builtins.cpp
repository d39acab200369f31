// kv_state_* for every kind of state, and the RNN state: vm-llm-state.md, sections 2 and 9.
#include "llm/rnn_state.h"
#include "llm/tables.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

SequenceState& state(const Args& args) {
  return *state_of<KvStateObj>(args, 0).impl;
}

void clear(const Args& args, Any*) {
  args.need(1);
  state(args).clear();
}
void add_sequence(const Args& args, Any*) {
  args.need(2);
  state(args).add_sequence(args.integer(1));
}
void remove_sequence(const Args& args, Any*) {
  args.need(2);
  state(args).remove_sequence(args.integer(1));
}
void fork_sequence(const Args& args, Any*) {
  args.need(4);
  state(args).fork_sequence(args.integer(1), args.integer(2), args.integer(3));
}
void popn(const Args& args, Any*) {
  args.need(3);
  state(args).popn(args.integer(1), args.integer(2));
}
std::vector<std::int64_t> numbers(const Args& args, int i) {
  const auto shape = args.shape(i);
  return {shape.begin(), shape.end()};
}
void begin_forward(const Args& args, Any*) {
  args.need(3, 4);
  std::optional<std::vector<std::int64_t>> parents;
  if (args.size() == 4 && args[3].type_index != kTVMFFINone) parents = numbers(args, 3);
  state(args).begin_forward(numbers(args, 1), numbers(args, 2), parents);
}
void end_forward(const Args& args, Any*) {
  args.need(1);
  state(args).end_forward();
}

RnnState& rnn(const Args& args) {
  return static_cast<RnnState&>(*state_of<RnnStateObj>(args, 0).impl);
}

template <class T>
std::vector<T> items(const Args& args, int i) {
  const auto& array = args.array(i);
  std::vector<T> out;
  for (std::int64_t k = 0; k < array.size; ++k) {
    const auto item = static_cast<const Any*>(array.data)[k].as<T>();
    if (!item)
      args.fail("TypeError", "an item of argument " + std::to_string(i) + " has the wrong type");
    out.push_back(*item);
  }
  return out;
}

void rnn_create(const Args& args, Any* out) {
  args.need(6);
  RnnState::Options options;
  options.layers = args.integer(0);
  options.sequences_max = args.integer(1);
  options.history = args.integer(2);
  options.get = items<tvm::ffi::Function>(args, 3);
  options.set = items<tvm::ffi::Function>(args, 4);
  options.initial = items<tvm::ffi::Tensor>(args, 5);
  auto object = tvm::ffi::make_object<RnnStateObj>();
  object->impl = std::make_unique<RnnState>(std::move(options));
  put(out, tvm::ffi::ObjectRef{std::move(object)});
}
void rnn_get(const Args& args, Any*) {
  args.need(4);
  rnn(args).get(args.integer(1), args.integer(2), args[3]);
}
void rnn_set(const Args& args, Any* out) {
  args.need(4);
  rnn(args).set(args.integer(1), args.integer(2), args[3]);
  put(out, keep(args[0]));
}
void rnn_debug_get(const Args& args, Any* out) {
  args.need(4);
  put(out, rnn(args).debug_get(args.integer(1), args.integer(2), args.integer(3)));
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.kv_state_clear(state)", clear>(),
    builtin<"vm.builtin.kv_state_add_sequence(state, id)", add_sequence>(),
    builtin<"vm.builtin.kv_state_remove_sequence(state, id)", remove_sequence>(),
    builtin<"vm.builtin.kv_state_fork_sequence(state, parent, child, position)", fork_sequence>(),
    builtin<"vm.builtin.kv_state_popn(state, id, n)", popn>(),
    builtin<"vm.builtin.kv_state_begin_forward(state, ids, lengths[, parents])", begin_forward>(),
    builtin<"vm.builtin.kv_state_end_forward(state)", end_forward>(),
    builtin<"vm.builtin.rnn_state_create(layers, sequences, history, get, set, initial)",
            rnn_create>(),
    builtin<"vm.builtin.rnn_state_get(state, layer, which, out)", rnn_get>(),
    builtin<"vm.builtin.rnn_state_set(state, layer, which, data)", rnn_set>(),
    builtin<"vm.builtin.rnn_state_debug_get(state, layer, which, id)", rnn_debug_get>(),
};

}  // namespace

std::span<const Builtin> state_builtins() {
  return kTable;
}
}  // namespace outpost::vm
