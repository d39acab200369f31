// The client library's own rates against one server, with the names of the black-box benchmark.
//   client_bench HOST PORT KEY [SECONDS]      prints one JSON object
#include <outpost/rpc/client.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
namespace client = outpost::client;

double seconds_of(const std::function<void()>& act) {
  const auto begin = Clock::now();
  act();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Median of one run, after one that is dropped; as many as fit into `seconds`, at least three.
double median(double seconds, const std::function<void()>& act) {
  act();
  std::vector<double> taken;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (taken.size() < 3 || Clock::now() < end) taken.push_back(seconds_of(act));
  std::ranges::nth_element(taken, taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2));
  return taken[taken.size() / 2];
}

class Report {
 public:
  ~Report() { std::printf("%s}\n", text_.empty() ? "{" : text_.c_str()); }
  void add(const std::string& name, double value) {
    text_ += text_.empty() ? "{" : ", ";
    text_ += "\"" + name + "\": " + std::to_string(value);
    std::fprintf(stderr, "  %-40s %.3f\n", name.c_str(), value);
  }

 private:
  std::string text_;
};

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> out(size);
  std::uint64_t x = 88172645463325252ULL;
  for (auto& b : out) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b = static_cast<std::byte>(x);
  }
  return out;
}

void bench(const client::Session& session, double seconds) {
  Report report;
  const auto null = session.get_function("vm.builtin.null_value");
  report.add("call.null.p50_us", 1e6 * median(seconds, [&] { null(); }));
  struct Size {
    const char* name;
    std::size_t bytes;
  };
  for (const auto& [name, bytes] : {Size{"256M", 256U << 20}, Size{"1M", 1U << 20}}) {
    const auto data = pattern(bytes);
    std::vector<std::byte> back(bytes);
    const auto rate = [&](const char* what, const std::function<void()>& act) {
      report.add(std::string{what} + "." + name + ".mb_per_s",
                 static_cast<double>(bytes) / 1e6 / median(seconds, act));
    };
    rate("upload", [&] { session.upload(data, "bench.bin"); });
    rate("download", [&] { session.download("bench.bin", back); });
    if (back != data) std::exit(1);
    session.remove("bench.bin");
    const auto tensor = session.cpu().empty({static_cast<std::int64_t>(bytes)}, {1, 8, 1});
    rate("copy_to", [&] { tensor.copy_from(data); });
    std::ranges::fill(back, std::byte{});
    rate("copy_from", [&] { tensor.copy_to(back); });
    if (back != data) std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fprintf(stderr, "usage: client_bench HOST PORT KEY [SECONDS]\n");
    return 2;
  }
  client::ConnectOptions options;
  options.key = argv[3];
  const auto session =
      client::connect(argv[1], static_cast<std::uint16_t>(std::stoi(argv[2])), options);
  bench(session, argc > 4 ? std::stod(argv[4]) : 1.0);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "client_bench: %s\n", e.what());
  return 1;
}
