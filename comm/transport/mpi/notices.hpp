// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/mpi.hpp>

namespace winnow::comm {

/// How a rank that aborts tells the others why: a short message with a tag of its own, which
/// waiting ranks probe for. Each rank gives one or takes one, not both.
class MpiNotices {
 public:
  /// Allocates all that send() needs.
  explicit MpiNotices(int ranks)
      : text_(std::make_unique<Text>()),
        requests_(static_cast<std::size_t>(ranks), MPI_REQUEST_NULL) {}

  /// Whether this rank has sent or found a notice.
  bool given() const { return given_; }
  /// Sends `reason`, cut to what fits, to all ranks but `self`, unless a notice was given.
  void send(MPI_Comm communicator, int self, std::string_view reason) noexcept;
  /// Says in `found` who aborted and why; leaves it alone where nobody did. Returns MPI's code.
  int probe(MPI_Comm communicator, std::string& found);
  /// Whether notices of this rank are still under way.
  bool any_open() noexcept;
  /// Leaves to MPI what is under way, for good.
  void let_go() noexcept;

 private:
  using Text = std::array<char, 256>;

  bool given_ = false;
  std::unique_ptr<Text> text_;
  std::vector<MPI_Request> requests_;  // by peer
};

}  // namespace winnow::comm
