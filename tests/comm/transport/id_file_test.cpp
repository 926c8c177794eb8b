// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/nccl/id_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>

namespace winnow::comm {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;

class IdFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "winnow_id_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "id"; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static Bytes id_of(int seed) {
    Bytes id(128);
    for (std::size_t i = 0; i < id.size(); ++i) {
      id[i] = static_cast<std::byte>(7 * i + static_cast<std::size_t>(seed));
    }
    return id;
  }
  static Bytes read(const IdFile& file, std::chrono::milliseconds most) {
    Bytes id(128);
    file.read(id, Deadline::after(most));
    return id;
  }

 private:
  std::filesystem::path folder_;
};

constexpr std::chrono::seconds kLong{60};
constexpr std::chrono::milliseconds kShort{20};

TEST_F(IdFiles, AnIdArrivesAndLeavesNothingBehind) {
  const IdFile file(path(), 7);
  file.write(id_of(1));
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(read(file, kLong), id_of(1));
  file.remove();
  EXPECT_EQ(files(), 0U);
}

TEST_F(IdFiles, ReadersMayComeFirst) {
  const IdFile file(path(), 7);
  std::vector<std::thread> readers;
  std::vector<Bytes> ids(3);
  for (Bytes& id : ids) readers.emplace_back([&] { id = read(file, kLong); });
  std::this_thread::sleep_for(kShort);
  file.write(id_of(2));
  for (std::thread& reader : readers) reader.join();
  for (const Bytes& id : ids) EXPECT_EQ(id, id_of(2));
}

// An earlier job's file is not mistaken for this job's, and is replaced.
TEST_F(IdFiles, AnOldFileIsNotRead) {
  IdFile(path(), 7).write(id_of(3));
  const IdFile file(path(), 8);
  EXPECT_THAT([&] { (void)read(file, kShort); },
              ThrowsMessage<CommError>(HasSubstr("is of job 7, not 8")));
  Bytes id;
  std::thread reader([&] { id = read(file, kLong); });
  std::this_thread::sleep_for(kShort);
  file.write(id_of(4));
  reader.join();
  EXPECT_EQ(id, id_of(4));
}

TEST_F(IdFiles, TheDeadlineSaysWhatIsThere) {
  const IdFile file(path(), 7);
  EXPECT_THAT([&] { (void)read(file, kShort); },
              ThrowsMessage<CommError>(HasSubstr("No such file or directory")));
  file.write(Bytes(5));
  EXPECT_THAT([&] { (void)read(file, kShort); },
              ThrowsMessage<CommError>(HasSubstr("an id of 5 bytes instead of 128")));
}

TEST_F(IdFiles, ReadersHearWhyThereIsNoId) {
  const IdFile file(path(), 7);
  file.refuse("there is no GPU here");
  EXPECT_THAT([&] { (void)read(file, kLong); },
              ThrowsMessage<CommError>(HasSubstr("rank 0: there is no GPU here")));
}

TEST_F(IdFiles, FilesOfOthersAreLeftAlone) {
  const std::string text = "somebody's notes, longer than a prefix";
  std::ofstream(path()) << text;
  const IdFile file(path(), 7);
  EXPECT_THAT([&] { file.write(id_of(5)); }, ThrowsMessage<UsageError>(HasSubstr("left alone")));
  file.refuse("no id");
  EXPECT_THAT([&] { (void)read(file, kShort); },
              ThrowsMessage<CommError>(HasSubstr("is no file that ranks meet at")));
  std::string now;
  std::getline(std::ifstream(path()), now);
  EXPECT_EQ(now, text);
  EXPECT_EQ(files(), 1U);
}

TEST_F(IdFiles, ABadPathIsAnErrorOfTheCaller) {
  EXPECT_THROW(IdFile("", 1), UsageError);
  EXPECT_THAT([&] { IdFile(path() + "/no/folder", 1).write(id_of(6)); },
              ThrowsMessage<UsageError>(HasSubstr("cannot meet at")));
}

}  // namespace
}  // namespace winnow::comm
