// The whole client against the whole host, in one process.
#include "outpost/rpc/local_session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

namespace outpost::client {
namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

class LocalSession : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "outpost-client-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    LocalOptions options;
    options.work_dir = folder_;
    session_ = local_session(options);
  }
  void TearDown() override {
    session_ = {};
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    std::filesystem::remove_all(folder_);
  }
  static Code code_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const RpcError& e) {
      return e.code();
    }
    return Code::internal;
  }

  std::string folder_;
  Session session_;
};

TEST_F(LocalSession, CallsAndHoldsObjects) {
  const auto array = session_.get_function("ffi.Array")(8, "two").as_object();
  EXPECT_EQ(session_.get_function("ffi.ArrayGetItem")(array, 1).as_string(), "two");
  EXPECT_EQ(code_of([&] { session_.get_function("absent"); }), Code::not_found);
}

TEST_F(LocalSession, MovesFilesOfEverySize) {
  for (const std::size_t size : {0, 1, 7, 8, 16'383, 16'384, 70'000, 2'000'000}) {
    SCOPED_TRACE(size);
    session_.upload(pattern(size), "file");
    EXPECT_EQ(session_.download("file"), pattern(size));
  }
}

TEST_F(LocalSession, WritesALocalFileOnlyWhenItIsWhole) {
  const auto target = testing::TempDir() + "outpost-client-download";
  std::filesystem::remove(target);
  EXPECT_EQ(code_of([&] { session_.download_file("absent", target); }), Code::remote);
  EXPECT_FALSE(std::filesystem::exists(target));
  session_.upload(pattern(500'000), "file");
  session_.download_file("file", target);
  EXPECT_EQ(std::filesystem::file_size(target), 500'000U);
  session_.upload_file(target, "again");
  EXPECT_EQ(session_.download("again"), pattern(500'000));
  std::filesystem::remove(target);
}

TEST_F(LocalSession, LosesNothingWhenThereIsNoRoomForAFile) {
  session_.upload(pattern(3'000'000), "file");
  // Nothing can be written to it; the bytes on the way are taken off the stream.
  EXPECT_EQ(code_of([&] { session_.download_file("file", "/dev/full"); }), Code::io);
  EXPECT_EQ(session_.download("file").size(), 3'000'000U);
}

TEST_F(LocalSession, CopiesTensorsAndViewsAtTheirOffsets) {
  std::vector<float> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const auto tensor = session_.cpu().tensor<float>({3, 4}, numbers);
  const auto row = tensor.view({4}, tensor.dtype(), 16);
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{4, 5, 6, 7}));
  const auto inner = row.view({2}, tensor.dtype(), 4);
  EXPECT_EQ(inner.to_vector<float>(), (std::vector<float>{5, 6}));
  EXPECT_EQ(inner.byte_offset(), 20U);
  const auto copy = session_.cpu().empty({2}, tensor.dtype());
  copy.copy_from(inner);
  EXPECT_EQ(copy.to_vector<float>(), (std::vector<float>{5, 6}));
  EXPECT_EQ(code_of([&] { row.view({4}, tensor.dtype(), 20); }), Code::argument);
  EXPECT_EQ(code_of([&] { (void)row.to_vector<double>(); }), Code::type);
}

TEST_F(LocalSession, ServesSeveralThreadsInTurns) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      const auto make = session_.get_function("ffi.Array");
      const auto get = session_.get_function("ffi.ArrayGetItem");
      for (int i = 0; i < 50; ++i) EXPECT_EQ(get(make(t, i).as_object(), 1).as_int(), i);
    });
  for (auto& t : threads) t.join();
}

TEST_F(LocalSession, FreesQuietlyWhatOutlivesIt) {
  const auto object = session_.get_function("ffi.Shape")(1);
  const auto tensor = session_.cpu().empty({4}, data_type_of<float>());
  session_.close();
  EXPECT_EQ(code_of([&] { (void)tensor.to_vector<float>(); }), Code::closed);
}

TEST_F(LocalSession, RefusesToBeUsedFromItsOwnProgress) {
  TransferOptions options;
  Code code = Code::internal;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    code = code_of([&] { session_.cpu().sync(); });
  };
  session_.upload(pattern(100'000), "file", options);
  EXPECT_EQ(code, Code::busy);
  EXPECT_EQ(session_.download("file"), pattern(100'000));
}

TEST_F(LocalSession, RefusesThingsOfAnotherSession) {
  const auto other = local_session();
  const auto tensor = other.cpu().empty({1}, data_type_of<float>());
  EXPECT_EQ(code_of([&] { session_.get_function("ffi.Array")(tensor); }), Code::argument);
  EXPECT_EQ(code_of([&] { session_.cpu().empty({1}, data_type_of<float>()).copy_from(tensor); }),
            Code::argument);
}

TEST_F(LocalSession, MeasuresAGlobalFunction) {
  EvaluatorOptions options;
  options.number = 2;
  options.repeat = 3;
  const auto result = session_.time_evaluator("ffi.Shape", options)(1, 2);
  EXPECT_EQ(result.seconds.size(), 3U);
}

}  // namespace
}  // namespace outpost::client
