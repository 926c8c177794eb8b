// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A file through which rank 0 passes a few bytes of one job to other ranks before there is a
/// transport. It appears whole or not at all. A reader who finds another job's file keeps waiting.
class IdFile {
 public:
  /// Throws UsageError for an empty path.
  IdFile(std::string path, std::uint64_t job);

  /// Writes `id`, replacing another job's file. Throws UsageError if the file is something else or
  /// its folder is not writable.
  void write(std::span<const std::byte> id) const;
  /// Tells readers why there will be no id.
  void refuse(std::string_view why) const noexcept;
  /// Waits for `id.size()` bytes. Throws CommError if rank 0 refuses, or at the deadline, saying
  /// what was there instead.
  void read(std::span<std::byte> id, Deadline deadline) const;
  void remove() const noexcept;

 private:
  struct Content;
  std::optional<Content> load(std::string& problem) const;
  void store(std::uint32_t kind, std::span<const std::byte> bytes) const;

  std::string path_;
  std::uint64_t job_;
};

}  // namespace winnow::comm
