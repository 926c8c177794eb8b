// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
#include <winnow/mpi.hpp>

namespace winnow::comm {

/// Pieces of messages under way: an MPI request each. Messages are numbers that the caller gives.
/// Allocates only in reserve().
class MpiPieces {
 public:
  struct Piece {
    std::byte* data;  ///< only read where is_send
    int bytes;
    int peer;
    bool is_send;
    bool synchronous;  ///< a send that ends no sooner than its receiver has met it
    std::uint64_t message;
    std::uint64_t offset;  ///< in that
  };
  struct Finished {
    std::uint64_t message;
    bool synchronous;
    int error;  ///< MPI's code
  };

  /// How many bytes the next piece from `peer` has, or -1 where none has come. Returns MPI's code.
  static int probe(MPI_Comm communicator, int peer, int& bytes);
  /// Makes room for `pieces` under way at a time.
  void reserve(std::size_t pieces);
  /// Sends or receives a piece; there must be room. Returns MPI's code.
  int post(MPI_Comm communicator, const Piece& piece);
  /// The pieces that are no longer under way, in `finished` until the next call; returns MPI's code
  /// where it could not be found out.
  int test(std::span<const Finished>& finished);
  /// The offset of the first piece of a message that is under way, or `none`.
  std::uint64_t first_open(std::uint64_t message, std::uint64_t none) const;
  /// Whether receipts, or any pieces, are still under way; for the time after a failure, when
  /// nothing is posted or tested any more.
  bool any_open(bool sends_too) noexcept;
  /// Leaves to MPI what is under way, for good.
  void let_go() noexcept;

 private:
  struct Owner {
    std::uint64_t message;
    bool is_send;
    bool synchronous;
    std::uint64_t offset;
  };

  // The first active_ of requests_ and owners_ are under way.
  std::size_t active_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  std::vector<Finished> finished_;
};

}  // namespace winnow::comm
