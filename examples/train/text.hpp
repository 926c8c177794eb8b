// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace train {

/// The shortest text with something to hold out.
inline constexpr std::size_t kMinTextBytes = 1024;

/// The bytes of `path`. Throws Exit(kUsageStatus) if it cannot be read, is empty or is shorter than
/// kMinTextBytes.
std::string read_text(const std::filesystem::path& path);

/// The text if no other is named, in the repository.
inline constexpr const char* kDefaultText = "examples/text/pride_and_prejudice.txt";

/// Where it lies: in the repository in which this program was built, or in the one around the
/// current directory. Throws Exit(kUsageStatus) if there is none.
std::filesystem::path default_text();

/// A text that is split for training: the last of every ten blocks is held out. The blocks are
/// spread over the text, since its end may differ in kind from its beginning. The model predicts
/// the byte at a target position from the `context` bytes before it, which lie on the same side of
/// the split.
class Corpus {
 public:
  static constexpr std::uint64_t kBlocks = 10;  ///< per group
  static constexpr std::uint64_t kBlockBytes =
      4096;  ///< at least, where the text has ten such blocks

  Corpus(const std::string& bytes, int context);

  std::span<const std::uint8_t> bytes() const { return bytes_; }
  /// Identifies the bytes in reports (FNV-1a, 64 bits).
  std::uint64_t fingerprint() const;

  /// Fills `targets` with training positions that depend only on seed, step and rank, so that every
  /// compressor sees the same minibatches.
  void sample(std::uint64_t seed, std::uint64_t step, int rank,
              std::span<std::uint64_t> targets) const;

  /// At most `limit` held-out positions, evenly spaced.
  std::vector<std::uint64_t> held_out(std::size_t limit) const;

 private:
  std::vector<std::uint8_t> bytes_;
  // Group g is [g * kBlocks * block_, (g + 1) * kBlocks * block_); the end of the text beyond the
  // last group is left out.
  std::uint64_t context_, groups_, block_;
};

}  // namespace train
