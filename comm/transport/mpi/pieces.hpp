// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
#include <winnow/mpi.hpp>

namespace winnow::comm {

/// Pieces of messages under way, one MPI request each. The caller numbers messages. Allocates only
/// in reserve().
class MpiPieces {
 public:
  struct Piece {
    std::byte* data;  ///< only read if is_send
    int bytes;
    int peer;
    bool is_send;
    bool synchronous;  ///< a send that completes only when its receiver has matched it
    std::uint64_t message;
    std::uint64_t offset;  ///< within the message
  };
  struct Finished {
    std::uint64_t message;
    bool synchronous;
    int error;  ///< MPI's code
  };

  /// Bytes of the next piece from `peer`, or -1 if none has arrived. Returns MPI's code.
  static int probe(MPI_Comm communicator, int peer, int& bytes);
  /// Reserves space for `pieces` under way at a time.
  void reserve(std::size_t pieces);
  /// Sends or receives a piece; space must be reserved. Returns MPI's code.
  int post(MPI_Comm communicator, const Piece& piece);
  /// Puts finished pieces into `finished`, valid until the next call. Returns MPI's code if the
  /// test itself failed.
  int test(std::span<const Finished>& finished);
  /// The offset of a message's first piece that is under way, or `none`.
  std::uint64_t first_open(std::uint64_t message, std::uint64_t none) const;
  /// Whether receipts (or any pieces, if `sends_too`) are still under way. For the time after a
  /// failure, when nothing is posted or tested any more.
  bool any_open(bool sends_too) noexcept;
  /// Leaves what is under way to MPI for good.
  void let_go() noexcept;

 private:
  // The first active_ entries of requests_ and pieces_ are under way.
  std::size_t active_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  std::vector<Finished> finished_;
};

}  // namespace winnow::comm
