// A user's program over the installed headers: one named check against one real server.
//   client_check HOST PORT KEY CHECK [ARGUMENT...]     exit code 0 when all was as expected
#include <outpost/rpc/client.h>
#include <outpost/rpc/tracker_client.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>

namespace {

namespace client = outpost::client;
using client::Session;

struct Context {
  std::string host;
  std::uint16_t port;
  std::string key;
  std::vector<std::string> more;

  client::ConnectOptions options() const {
    client::ConnectOptions out;
    out.key = key;
    return out;
  }
  Session open() const { return client::connect(host, port, options()); }
};

#define EXPECT(condition) expect(condition, #condition, __LINE__)
void expect(bool condition, const char* text, int line) {
  if (condition) return;
  std::fprintf(stderr, "line %d: expected %s\n", line, text);
  std::exit(1);
}

/// The code of what `act` throws; `internal` and a message when it throws nothing.
client::Code code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const client::RpcError& e) {
    std::printf("%s: %s\n", std::string{name(e.code())}.c_str(), e.what());
    return e.code();
  }
  std::fprintf(stderr, "nothing was thrown\n");
  return client::Code::internal;
}

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> out(size);
  std::uint32_t x = 12345;
  for (auto& b : out) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24);
  }
  return out;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

void values(const Context& c) {
  const auto session = c.open();
  EXPECT(session.server_key() == "server:" + c.key);
  const auto shape = session.get_function("ffi.Shape");
  const auto object = shape(8, 2).as_object();
  EXPECT(object.type_index() == 69);
  EXPECT(session.get_function("rpc.testing.GetShapeElem")(object, 1).as_int() == 2);
  const auto array =
      session.get_function("ffi.Array")(1, 2.5, "text", true, nullptr, client::DataType{4, 16, 1},
                                        client::Device{1, 0}, bytes_of("blob"));
  const auto item = session.get_function("ffi.ArrayGetItem");
  EXPECT(item(array, 0).as_int() == 1);
  EXPECT(item(array, 1).as_double() == 2.5);
  EXPECT(item(array, 2).as_string() == "text");
  EXPECT(item(array, 3).as_bool());
  EXPECT(item(array, 4).is_none());
  EXPECT(item(array, 5).as_data_type() == client::DataType::parse("bfloat16"));
  EXPECT((item(array, 6).as_device() == client::Device{1, 0}));
  EXPECT(item(array, 7).as_bytes().size() == 4);
  const auto large = pattern(3'000'000);
  EXPECT(item(session.get_function("ffi.Array")(large, 7), 0).as_bytes() == large);
  EXPECT(!session.find_function("no.such.function"));
  EXPECT(code_of([&] { session.get_function("no.such.function"); }) == client::Code::not_found);
  EXPECT(code_of([&] { item(array, 99); }) == client::Code::remote);
  EXPECT(code_of([&] { (void)item(array, 2).as_int(); }) == client::Code::type);
  EXPECT(item(array, 0).as_int() == 1);
}

void files(const Context& c) {
  const auto session = c.open();
  for (const std::size_t size : {0, 1, 7, 8, 100, 20'000, 3'000'000}) {
    const auto data = pattern(size);
    session.upload(data, "data.bin");
    EXPECT(session.download("data.bin") == data);
    std::vector<std::byte> into(size);
    EXPECT(session.download("data.bin", into) == size);
    EXPECT(into == data);
  }
  const auto folder = c.more.at(0);
  const auto data = pattern(1'000'000);
  std::ofstream{folder + "/local.bin", std::ios::binary}.write(
      reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  std::uint64_t seen = 0;
  client::TransferOptions watch;
  watch.progress = [&](std::uint64_t done, std::uint64_t total) {
    seen = done;
    EXPECT(total == 1'000'000);
  };
  session.upload_file(folder + "/local.bin", "", watch);
  EXPECT(std::exchange(seen, 0) == data.size());
  session.download_file("local.bin", folder + "/back.bin", watch);
  EXPECT(std::exchange(seen, 0) == data.size());
  std::ifstream back{folder + "/back.bin", std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{back}, {}};
  EXPECT(std::ranges::equal(bytes_of(text), data));
  std::vector<std::byte> small(10);
  EXPECT(code_of([&] { session.download("local.bin", small); }) == client::Code::limit);
  EXPECT(code_of([&] { session.download_file("absent", folder + "/absent"); }) ==
         client::Code::remote);
  EXPECT(!std::ifstream{folder + "/absent"});
  EXPECT(code_of([&] { session.download_file("local.bin", "/nonexistent/x"); }) ==
         client::Code::not_found);
  session.remove("local.bin");
  EXPECT(code_of([&] { session.download("local.bin"); }) == client::Code::remote);
  session.remove("");
}

void listing(const Context& c) {
  const auto session = c.open();
  session.upload(bytes_of("a"), "one.txt");
  session.upload(bytes_of("b"), "two.txt");
  const auto names = session.listdir();
  EXPECT(names.size() == 2);
}

void tensors(const Context& c) {
  const auto session = c.open();
  const auto cpu = session.cpu();
  std::vector<float> numbers(6);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const auto tensor = cpu.tensor<float>({2, 3}, numbers);
  EXPECT(tensor.to_vector<float>() == numbers);
  // A view of the second row; the stock client would read the first.
  const auto row = tensor.view({3}, tensor.dtype(), 12);
  EXPECT((row.to_vector<float>() == std::vector<float>{3, 4, 5}));
  const float nine[] = {9};
  row.copy_from(std::as_bytes(std::span{nine}), 4);
  EXPECT((tensor.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 9, 5}));
  const auto copy = cpu.empty({3}, tensor.dtype());
  copy.copy_from(row);
  EXPECT((copy.to_vector<float>() == std::vector<float>{3, 9, 5}));
  const auto scalar = cpu.empty({}, client::data_type_of<std::int64_t>());
  const std::int64_t value[] = {-7};
  scalar.assign(std::span<const std::int64_t>{value});
  EXPECT((scalar.to_vector<std::int64_t>() == std::vector<std::int64_t>{-7}));
  EXPECT(cpu.empty({0, 4}, tensor.dtype()).to_vector<float>().empty());
  const auto nibbles = cpu.empty({3}, client::DataType::parse("int4"), "global");
  EXPECT(nibbles.byte_size() == 2);
  nibbles.copy_from(pattern(2));
  std::vector<std::byte> two(2);
  nibbles.copy_to(two);
  EXPECT(two == pattern(2));
  EXPECT(code_of([&] { tensor.copy_from(pattern(8), 20); }) == client::Code::argument);
  EXPECT(code_of([&] { tensor.view({4}, tensor.dtype(), 12); }) == client::Code::argument);
  EXPECT(code_of([&] { cpu.empty({1LL << 50}, client::DataType::parse("int8")); }) ==
         client::Code::remote);
  EXPECT(cpu.exists());
  EXPECT(cpu.attribute(client::DeviceAttribute::warp_size).is_none());
  cpu.sync();
  const auto stream = cpu.create_stream();
  stream.sync();
  cpu.set_stream(stream.pointer());
  cpu.set_stream({});
}

void large_copy(const Context& c) {
  const auto session = c.open();
  const auto size = static_cast<std::size_t>(std::stoull(c.more.at(0)));
  const auto data = pattern(size);
  const auto tensor = session.cpu().empty({static_cast<std::int64_t>(size)}, {1, 8, 1});
  tensor.copy_from(data);
  std::vector<std::byte> back(size);
  tensor.copy_to(back);
  EXPECT(back == data);
}

void modules(const Context& c) {
  const auto session = c.open();
  session.upload_file(c.more.at(0), "kernels.so");
  const auto module = session.load_module("kernels.so");
  const float four[] = {1, 2, 3, 4};
  const auto a = session.cpu().tensor<float>({4}, four);
  const auto b = session.cpu().empty({4}, a.dtype());
  module["add_one"](a, b);
  EXPECT((b.to_vector<float>() == std::vector<float>{2, 3, 4, 5}));
  EXPECT(!module.find_function("absent"));
  EXPECT(code_of([&] { module.get_function("absent"); }) == client::Code::not_found);
  client::EvaluatorOptions evaluator;
  evaluator.number = 3;
  evaluator.repeat = 4;
  const auto times = module.time_evaluator("add_one", evaluator)(a, b);
  EXPECT(times.seconds.size() == 4);
  EXPECT(times.min() <= times.median() && times.median() <= times.max());
  EXPECT(times.mean() > 0 && times.deviation() >= 0);
  EXPECT(code_of([&] { session.load_module("absent.so"); }) == client::Code::remote);
  EXPECT(code_of([&] { module["add_one"](a); }) == client::Code::remote);
  const auto other = session.load_module("kernels.so");
  other.import_module(module);
  const auto linked = session.download_linked_module("kernels.so");
  EXPECT(linked.size() > 1000);
  EXPECT(static_cast<bool>(session.system_lib()));
}

void mixing(const Context& c) {
  const auto session = c.open();
  const auto function = session.get_function("ffi.Array");
  const auto tensor = session.cpu().empty({1}, {2, 32, 1});
  const client::Tensor none;
  EXPECT(code_of([&] { function(none); }) == client::Code::argument);
  EXPECT(code_of([&] { function(std::numeric_limits<std::uint64_t>::max()); }) ==
         client::Code::argument);
  EXPECT(static_cast<bool>(function(tensor).as_object()));
  if (c.more.empty()) return;
  // A tensor of another session, on a server that serves two at a time.
  const auto other = c.open();
  EXPECT(code_of([&] { other.get_function("ffi.Array")(tensor); }) == client::Code::argument);
  EXPECT(static_cast<bool>(function(tensor).as_object()));
}

void expiry(const Context& c) {
  auto options = c.options();
  options.session_timeout = std::chrono::milliseconds{500};
  const auto session = client::connect(c.host, c.port, options);
  session.upload_file(c.more.at(0), "probe.so");
  const auto nap = session.load_module("probe.so")["sleep_ms"];
  EXPECT(code_of([&] { nap(20'000); }) == client::Code::session_timeout);
  EXPECT(code_of([&] { nap(1); }) == client::Code::session_timeout);
}

void slow_call(const Context& c) {
  auto options = c.options();
  options.timeouts.answer = std::chrono::milliseconds{300};
  const auto session = client::connect(c.host, c.port, options);
  session.upload_file(c.more.at(0), "probe.so");
  const auto nap = session.load_module("probe.so")["sleep_ms"];
  EXPECT(code_of([&] { nap(20'000); }) == client::Code::timeout);
  EXPECT(code_of([&] { nap(1); }) == client::Code::closed);
}

void crash(const Context& c) {
  const auto session = c.open();
  session.upload_file(c.more.at(0), "probe.so");
  const auto module = session.load_module("probe.so");
  const auto tensor = session.cpu().empty({1}, {2, 32, 1});
  try {
    module["crash"]();
    EXPECT(false);
  } catch (const client::RpcError& e) {
    std::printf("%s\n", e.what());
  }
  EXPECT(!session.is_open());
}

/// Says when it holds things, waits for a line, then uses and drops them: the server is gone by
/// then.
void orphan(const Context& c) {
  const auto session = c.open();
  const auto function = session.get_function("ffi.Array");
  auto tensor = session.cpu().empty({1}, {2, 32, 1});
  std::printf("holding\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  EXPECT(code_of([&] { (void)tensor.to_vector<float>(); }) == client::Code::io);
  EXPECT(code_of([&] { function(); }) == client::Code::closed);
  EXPECT(!session.is_open());
}

void closed(const Context& c) {
  auto session = c.open();
  const auto function = session.get_function("ffi.Array");
  const auto object = function(1);
  session.close();
  EXPECT(code_of([&] { function(); }) == client::Code::closed);
  EXPECT(code_of([&] { session.listdir(); }) == client::Code::closed);
  EXPECT(!session.is_open());
}

void wrong_key(const Context& c) {
  auto options = c.options();
  options.key = "no-such-key";
  EXPECT(code_of([&] { client::connect(c.host, c.port, options); }) == client::Code::not_found);
}

/// A server that serves one at a time must be free before the second session is opened.
void hop(const Context& c) {
  auto options = c.options();
  options.session_constructor_args = {std::string{"rpc.Connect"}, c.more.at(0),
                                      std::int64_t{std::stoi(c.more.at(1))}, c.more.at(2), false};
  auto session = client::connect(c.host, c.port, options);
  const auto data = pattern(1'000'000);
  const auto tensor = session.cpu().empty({1'000'000}, {1, 8, 1});
  tensor.copy_from(data);
  std::vector<std::byte> back(data.size());
  tensor.copy_to(back);
  EXPECT(back == data);
  session.upload(data, "over.bin");
  EXPECT(session.download("over.bin") == data);
  EXPECT(code_of([&] { session.download("absent"); }) == client::Code::remote);
  session.close();
  options.session_constructor_args = {std::string{"no.such.constructor"}};
  EXPECT(code_of([&] { client::connect(c.host, c.port, options); }) == client::Code::remote);
}

/// Here host and port are the tracker's, and the key is that of its one board.
void tracker(const Context& c) {
  auto session = client::connect_tracker(c.host, c.port);
  EXPECT(session.ping());
  const auto has_board = [&] {
    for (const auto& q : session.summary().queues)
      if (q.key == c.key) return true;
    return false;
  };
  for (int i = 0; i < 3; ++i) {
    const auto board = session.request(c.key);
    EXPECT(!board.get_function("ffi.Array")(1).is_none());
  }
  EXPECT(has_board());
  client::RequestOptions impatient;
  impatient.wait = std::chrono::milliseconds{200};
  EXPECT(code_of([&] { session.request("no-such-board", impatient); }) == client::Code::timeout);
  EXPECT(session.ping());  // on a new connection, since the old one held the request
  session.close();
  EXPECT(code_of([&] { session.ping(); }) == client::Code::closed);
}

/// A lost session is tried again on a fresh board; an error and the session's time-out are not.
void run_again(const Context& c) {
  auto session = client::connect_tracker(c.host, c.port);
  int runs = 0;
  const auto run = [&](const char* function, const client::RequestOptions& options) {
    runs = 0;
    return code_of([&] {
      session.request_and_run(
          c.key,
          [&](Session& board) {
            ++runs;
            board.upload_file(c.more.at(0), "probe.so");
            const auto module = board.load_module("probe.so");
            return runs == 1 ? module[function](20'000) : module["noargs"]();
          },
          options);
    });
  };
  client::RequestOptions options;
  EXPECT(run("crash", options) == client::Code::internal);  // nothing was thrown
  EXPECT(runs == 2);
  EXPECT(run("absent", options) == client::Code::not_found);
  EXPECT(runs == 1);
  options.connect.session_timeout = std::chrono::milliseconds{500};
  EXPECT(run("sleep_ms", options) == client::Code::session_timeout);
  EXPECT(runs == 1);
}

const std::map<std::string, void (*)(const Context&)> kChecks{
    {"values", values},         {"files", files},
    {"listing", listing},       {"tensors", tensors},
    {"large_copy", large_copy}, {"modules", modules},
    {"mixing", mixing},         {"expiry", expiry},
    {"slow_call", slow_call},   {"crash", crash},
    {"orphan", orphan},         {"closed", closed},
    {"wrong_key", wrong_key},   {"hop", hop},
    {"tracker", tracker},       {"run_again", run_again}};

}  // namespace

int main(int argc, char** argv) try {
  const auto check = argc > 4 ? kChecks.find(argv[4]) : kChecks.end();
  if (check == kChecks.end()) {
    std::fprintf(stderr, "usage: client_check HOST PORT KEY CHECK [ARGUMENT...]\n");
    return 2;
  }
  const Context context{argv[1], static_cast<std::uint16_t>(std::stoi(argv[2])), argv[3],
                        std::vector<std::string>(argv + 5, argv + argc)};
  check->second(context);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "unexpected: %s\n", e.what());
  return 1;
}
