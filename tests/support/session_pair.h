#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "host/serve.h"
#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::test {

/// A session served by a thread of this process, and the raw wire to it.
class SessionPair {
 public:
  explicit SessionPair(host::SessionOptions options = {}) : options_{std::move(options)} {
    EXPECT_TRUE(host::preload({}));
    std::string pattern = (std::filesystem::temp_directory_path() / "session-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    options_.work_dir = folder_;
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    client_.reset(ends[0]);
    server_.reset(ends[1]);
    thread_ = std::thread{[this] {
      end_ = host::serve_session(server_.get(), options_, page_);
      server_.reset();
    }};
  }
  ~SessionPair() {
    leave();
    std::filesystem::remove_all(folder_);
  }

  /// Closes this end and waits for the session's; returns why it ended.
  SessionEnd leave() {
    client_.reset();
    if (thread_.joinable()) thread_.join();
    return end_;
  }
  int socket() const { return client_.get(); }
  const std::string& folder() const { return folder_; }
  SessionPage& page() { return page_; }

  void send(Bytes raw) {
    while (!raw.empty()) {
      const auto n = ::send(client_.get(), raw.data(), raw.size(), MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      raw = raw.subspan(static_cast<std::size_t>(n));
    }
  }

  /// Sends one frame whose body behind the code `write(ByteWriter&)` makes.
  template <class Write>
  void request(rpc::FrameCode code, Write write) {
    std::vector<std::byte> raw;
    ByteWriter out{raw};
    const auto begin = rpc::open_frame(out, code);
    write(out);
    rpc::close_frame(out, begin);
    send(raw);
  }

  struct Answer {
    rpc::FrameCode code{};
    std::vector<std::byte> body;  ///< behind the code
    std::vector<rpc::Value> values;
    std::string text() const {
      return values.empty() ? std::string{} : std::string{as_text(values[0].data)};
    }
  };
  /// The next answer; code 0 when the peer closed.
  Answer answer() {
    Answer out;
    std::byte head[12];
    if (!read(head, sizeof head)) return out;
    std::size_t skipped = 0;
    const auto parsed = *rpc::parse_frame_head(head, skipped);
    out.code = parsed->code;
    out.body.resize(parsed->body_bytes - 4);
    if (!read(out.body.data(), out.body.size())) return {};
    if (out.code != rpc::FrameCode::copy_ack) {
      EXPECT_TRUE(rpc::decode_packed(out.body, {}, out.values));
    }
    return out;
  }

  void init() {
    request(rpc::FrameCode::init_server, [](ByteWriter& out) {
      out.sized(as_bytes(rpc::kProtocolVersion));
      out.le<std::int32_t>(0);
    });
    ASSERT_EQ(answer().code, rpc::FrameCode::return_value);
  }
  std::uint64_t global(std::string_view name) {
    request(rpc::FrameCode::get_global_func, [&](ByteWriter& out) {
      rpc::PackedWriter packed{out};
      packed.count(1);
      packed.raw_string(name);
    });
    const auto a = answer();
    return a.values.empty() ? 0 : a.values[0].handle();
  }
  template <class Write>
  Answer call(std::uint64_t function, std::int32_t count, Write write) {
    request(rpc::FrameCode::call_func, [&](ByteWriter& out) {
      out.le(function);
      rpc::PackedWriter packed{out};
      packed.count(count);
      write(packed);
    });
    return answer();
  }
  /// A float32 tensor of this shape on the CPU.
  std::uint64_t alloc(const std::vector<std::int64_t>& shape) {
    request(rpc::FrameCode::dev_alloc_data_with_scope, [&](ByteWriter& out) {
      rpc::PackedWriter packed{out};
      packed.count(2);
      packed.tensor(view(0, shape));
      packed.none();
    });
    const auto a = answer();
    return a.code == rpc::FrameCode::return_value ? a.values[0].handle() : 0;
  }
  static rpc::TensorView view(std::uint64_t data, const std::vector<std::int64_t>& shape,
                              std::uint64_t byte_offset = 0) {
    return {.data = data,
            .device = {1, 0},
            .dtype = {2, 32, 1},
            .dims = {reinterpret_cast<const std::byte*>(shape.data()), 8 * shape.size()},
            .byte_offset = byte_offset};
  }
  Answer copy_to(const rpc::TensorView& to, Bytes data) {
    request(rpc::FrameCode::copy_to_remote, [&](ByteWriter& out) {
      rpc::encode_tensor(out, to);
      out.sized(data);
    });
    return answer();
  }
  Answer copy_from(const rpc::TensorView& from, std::uint64_t bytes) {
    request(rpc::FrameCode::copy_from_remote, [&](ByteWriter& out) {
      rpc::encode_tensor(out, from);
      out.le(bytes);
    });
    return answer();
  }

 private:
  bool read(std::byte* to, std::size_t bytes) {
    while (bytes != 0) {
      const auto n = ::recv(client_.get(), to, bytes, 0);
      if (n <= 0) return false;
      to += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  host::SessionOptions options_;
  std::string folder_;
  unique_fd client_, server_;
  SessionPage page_;
  SessionEnd end_ = SessionEnd::unknown;
  std::thread thread_;
};

}  // namespace outpost::test
