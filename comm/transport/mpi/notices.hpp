// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// The notice by which an aborting rank gives its reason: a short message with its own tag, for
/// which waiting ranks probe. Each rank sends or receives one, not both.
class MpiNotices {
 public:
  /// Allocates everything that send() needs.
  explicit MpiNotices(int ranks)
      : text_(std::make_unique<Text>()),
        requests_(static_cast<std::size_t>(ranks), MPI_REQUEST_NULL) {}

  /// Whether this rank has sent or found a notice.
  bool given() const { return given_; }
  /// Sends `reason`, cut to what fits, to all ranks but `self`, unless a notice was given.
  void send(MPI_Comm communicator, int self, std::string_view reason, FailureKind kind) noexcept;
  /// Reports in `found` who aborted and why, and leaves it alone if nobody did. Returns MPI's code.
  int probe(MPI_Comm communicator, std::optional<Failure>& found);
  /// Whether notices of this rank are still under way.
  bool any_open() noexcept;
  /// Leaves what is under way to MPI for good.
  void let_go() noexcept;

 private:
  /// One byte for the kind, then the reason and a zero byte.
  using Text = std::array<char, 256>;

  bool given_ = false;
  std::unique_ptr<Text> text_;
  std::vector<MPI_Request> requests_;  // by peer
};

}  // namespace winnow::comm
