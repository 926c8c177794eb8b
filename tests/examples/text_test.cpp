// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/text.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "train/exit.hpp"

namespace train {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed after the test.
class TextFile : public ::testing::Test {
 protected:
  TextFile() { fs::create_directories(folder_); }
  ~TextFile() override { fs::remove_all(folder_); }

  fs::path write(const fs::path& name, const std::string& bytes) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  /// The error from reading `path`, or empty.
  std::string refusal(const fs::path& path) {
    try {
      read_text(path);
    } catch (const Exit& exit) {
      EXPECT_EQ(exit.status(), kUsageStatus);
      EXPECT_EQ(std::string(exit.what()).find('\n'), std::string::npos);
      return exit.what();
    }
    return "";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("winnow_text_test_" + std::to_string(getpid()));
};

std::string every_byte(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

TEST_F(TextFile, MissingIsRefusedWithTheReason) {
  EXPECT_EQ(refusal(folder_ / "none"),
            "cannot read " + (folder_ / "none").string() + ": No such file or directory");
}

TEST_F(TextFile, FolderIsRefused) {
  EXPECT_EQ(refusal(folder_), "cannot read " + folder_.string() + ": it is a directory");
}

TEST_F(TextFile, EmptyIsRefused) {
  const fs::path path = write("empty", "");
  EXPECT_EQ(refusal(path), path.string() + " is empty");
}

TEST_F(TextFile, TooShortIsRefusedWithBothLengths) {
  const fs::path path = write("short", every_byte(kMinTextBytes - 1));
  EXPECT_EQ(refusal(path), path.string() + " is too short: 1023 bytes, 1024 are needed");
}

TEST_F(TextFile, BinaryIsReadByteForByte) {
  const std::string bytes = every_byte(kMinTextBytes);
  EXPECT_EQ(read_text(write("binary", bytes)), bytes);
}

// Losses in documents are of these bytes.
TEST(DefaultText, IsFoundAndNeverChanges) {
  EXPECT_EQ(default_text().filename(), "pride_and_prejudice.txt");
  const std::string bytes = read_text(default_text());
  EXPECT_EQ(bytes.size(), 684768u);
  EXPECT_EQ(Corpus(bytes, 16).fingerprint(), 0x5efb45a7f31a8daeu);
}

constexpr int kContext = 16;

TEST(Corpus, TrainingTargetsAreKeyedBySeedStepAndRank) {
  const Corpus corpus(every_byte(5000), kContext);
  const auto targets = [&](std::uint64_t seed, std::uint64_t step, int rank) {
    std::vector<std::uint64_t> sample(64);
    corpus.sample(seed, step, rank, sample);
    return sample;
  };
  EXPECT_EQ(targets(1, 2, 3), targets(1, 2, 3));
  EXPECT_NE(targets(1, 2, 3), targets(2, 2, 3));
  EXPECT_NE(targets(1, 2, 3), targets(1, 3, 3));
  EXPECT_NE(targets(1, 2, 3), targets(1, 2, 4));
}

/// The shortest text, one group of ten blocks of 102 bytes: exactly its training targets are drawn.
TEST(Corpus, TrainingTargetsFillNineBlocksOfTenAndNoMore) {
  const Corpus corpus(every_byte(kMinTextBytes), kContext);
  std::vector<std::uint64_t> sample(100'000);
  corpus.sample(1, 0, 0, sample);
  const std::set<std::uint64_t> drawn(sample.begin(), sample.end());
  EXPECT_EQ(*drawn.begin(), 16u);
  EXPECT_EQ(*drawn.rbegin(), 917u);
  EXPECT_EQ(drawn.size(), 918u - 16);
}

TEST(Corpus, HeldOutContextsLieInTheHeldOutBlock) {
  const Corpus corpus(every_byte(kMinTextBytes), kContext);
  const std::vector<std::uint64_t> held_out = corpus.held_out(4096);
  ASSERT_EQ(held_out.size(), 102u - 16);  // all of them
  EXPECT_EQ(held_out.front(), 918u + 16);
  EXPECT_EQ(held_out.back(), 1019u);
}

/// Three groups of ten blocks of 4167 bytes: no byte is read on both sides of the split.
TEST(Corpus, NoByteIsOnBothSides) {
  const Corpus corpus(every_byte(125'010), kContext);
  std::vector<std::uint64_t> sample(1'000'000);
  corpus.sample(1, 0, 0, sample);
  const std::vector<std::uint64_t> held_out = corpus.held_out(1'000'000);
  EXPECT_EQ(held_out.size(), 3u * (4167 - 16));
  const auto is_held_out = [](std::uint64_t position) { return position / 4167 % 10 == 9; };
  for (const std::uint64_t target : sample) {
    EXPECT_FALSE(is_held_out(target) || is_held_out(target - kContext));
  }
  for (const std::uint64_t target : held_out) {
    EXPECT_TRUE(is_held_out(target) && is_held_out(target - kContext));
  }
}

TEST(Corpus, HeldOutTargetsAreSpreadEvenlyAndDiffer) {
  const Corpus corpus(every_byte(100'000), kContext);
  const std::vector<std::uint64_t> held_out = corpus.held_out(100);
  ASSERT_EQ(held_out.size(), 100u);
  EXPECT_EQ(held_out, corpus.held_out(100));
  EXPECT_EQ(std::set<std::uint64_t>(held_out.begin(), held_out.end()).size(), 100u);
  // Two groups of ten blocks of 5000: half of the targets in each.
  EXPECT_EQ(std::ranges::count_if(held_out, [](std::uint64_t at) { return at < 50'000; }), 50);
}

}  // namespace
}  // namespace train
