// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace winnow::comm {

/// A piece of a parameter, as in compress::PieceState.
struct SavedPiece {
  std::uint64_t turn = 0;
  std::uint64_t dirty = 0;  ///< 0 or 1
  std::uint64_t owned_by_plan = 0;
};

/// The state that a parameter carries from step to step on one rank, without bounds, which only
/// choose work.
struct SavedParameter {
  std::uint64_t id = 0;
  std::uint64_t count = 0;
  std::uint64_t piece_length = 0;
  std::vector<SavedPiece> pieces;
  std::vector<float> residual;  ///< `count` elements; none: all zero
  std::uint64_t calls = 0;      ///< in which it was summed
  std::uint64_t counted = 0;    ///< gradients that the moment counts
  std::vector<float> moment;    ///< `count` elements, or none
  std::string name;             ///< or empty; for the text of errors
};

/// The state of one rank's AllReducer.
struct SavedState {
  std::uint32_t ranks = 1, rank = 0;
  std::uint64_t calls = 0;
  std::vector<SavedParameter> parameters;  ///< ascending by id
};

// As bytes, little-endian, in words of 8 bytes:
//   "WNWSTATE", version, ranks, rank, calls, number of parameters
//   of each parameter: id, count, piece length, number of pieces, number of residual elements,
//     calls, gradients that the moment counts, number of its elements, bytes of its name;
//     of each piece: turn, whether dirty, owned_by_plan; then the residual and the moment, 4 bytes
//     an element, and the name, each filled up with zeros to a word
//   CRC-64/NVME of all bytes before this word
// Version 3 is written. Version 2, which is read, too, has no names, and FNV-1a over its words in
// the place of the CRC.

std::vector<std::byte> to_bytes(const SavedState& state);
/// UsageError if the bytes are none of to_bytes, or damaged.
SavedState from_bytes(std::span<const std::byte> bytes);

/// The state with which rank `rank` of `ranks` continues a job. `states`: one of each old rank, in
/// any order; for as many ranks as before this rank's own is enough. Mass is conserved: a residual
/// goes to the rank whose number is the old one's modulo `ranks`. Where results are averages it is
/// scaled, since it was to be divided by the old number of ranks. A rank goes on with the moments
/// of the old rank whose number is its own modulo their number. One state among spans without
/// memory, as many as old ranks in all, goes on on this rank: what the others held is left to them.
/// UsageError if states are missing, double or of different steps.
SavedState take_over(std::span<const std::span<const std::byte>> states, int rank, int ranks,
                     bool averages);

}  // namespace winnow::comm
