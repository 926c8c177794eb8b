// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>
#include <winnow/transport.hpp>

namespace train {

/// The ranks of this job, for the trainer's own messages; no gradient travels here. Every member
/// function is collective.
class Group {
 public:
  explicit Group(std::unique_ptr<winnow::Transport> transport);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  /// Returns when all ranks have come.
  void barrier();

  /// Collects `mine` of every rank, in rank order.
  template <class T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size()));
    gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  /// Runs `work` on rank 0 and gives all ranks its result. If it throws, all ranks throw Exit, with
  /// the status of rank 0's Exit or kFailureStatus.
  std::string from_first_rank(const std::function<std::string()>& work);

 private:
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);
  void broadcast(std::span<std::byte> bytes);

  std::unique_ptr<winnow::Transport> transport_;
  winnow::Workspace workspace_;
  winnow::Exec exec_{.workspace = &workspace_};
};

}  // namespace train
