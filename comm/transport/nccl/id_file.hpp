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

/// A file through which rank 0 tells a few bytes to other ranks, before there is a transport: whole
/// or not there at all, and of one job. Whoever reads a file of another job waits on.
class IdFile {
 public:
  /// Throws UsageError for an empty path.
  IdFile(std::string path, std::uint64_t job);

  /// Puts `id` there, in the place of what another job left. Throws UsageError where the file is
  /// none of these or its folder cannot be written to.
  void write(std::span<const std::byte> id) const;
  /// Tells readers that there will be no id, and why.
  void refuse(std::string_view why) const noexcept;
  /// Waits for `id.size()` bytes. Throws CommError at the deadline, saying what was there instead,
  /// and where rank 0 refuses.
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
