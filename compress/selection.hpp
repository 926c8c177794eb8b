// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"

namespace winnow::compress {

inline constexpr std::size_t kSpareCandidates = 4096;  // beside 2k

/// Candidates that are expected among `count` positions that compete for k places, at most.
std::size_t list_room(std::size_t count, std::size_t k);

/// Elements of this rank's own that other ranks can name, at most.
std::uint64_t most_touched(const Part& part);

/// Room for `listed` candidates of what this rank owns of a piece, of whose elements others name
/// `most`.
kernels::OwnedSums take_list(Workspace& workspace, const Part& part, const Piece& piece,
                             std::size_t listed, std::uint64_t most);

/// The rest of Compressor::encode for a compressor that has selected elements: `index` are their
/// positions in the part, ascending, `value` what acc was there; both are scratch. Writes a message
/// per owner; what a coding misses goes into the residuals, which are zero at these positions.
/// Where Part::any_k, a message carries every position if that is no longer, 0 where nothing was
/// selected.
void seal_selected(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<std::uint32_t> index, std::span<float> value, Outbox& out);

/// The rest of Compressor::encode_sums: `index` are local numbers, ascending, `value` what the
/// sums were there; what the coding misses is left in `value`. Returns the message.
std::span<std::byte> seal_selected_sums(const Exec& exec, const Codings& codings,
                                        const EncodeJob& job, std::span<const std::uint32_t> index,
                                        std::span<float> value, std::span<std::byte> out);

/// Contributions as lists by local number; those that carry every position are decoded. Takes the
/// same memory whether they do or not.
std::span<const kernels::Term> as_lists(const Exec& exec, const Part& part,
                                        std::span<const MessageView> contributions);

}  // namespace winnow::compress
