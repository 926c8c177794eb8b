// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <winnow/exec.hpp>

#include "compress/compressor.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::compress {

/// Error feedback that takes nothing out of the pieces: residual = acc. If `own` is not empty,
/// lists the elements of each piece's entry there that reach the piece's bound. A result for each
/// piece.
void accumulate(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
                std::span<kernels::SelectResult> results);

/// A list of chosen elements, in scratch of exec.place.
struct List {
  std::span<std::uint32_t> index;
  std::span<float> value;
  std::uint64_t* size = nullptr;  ///< if k is variable: how many there are, once passes have run

  bool is_variable() const { return size != nullptr; }
  /// Room for the next piece's k elements, from entry `at` on, which moves behind them. If k is
  /// variable, the pieces share all of it.
  List of_piece(std::uint64_t k, std::size_t& at) const {
    if (is_variable()) return *this;
    const std::size_t begin = std::exchange(at, at + k);
    return {index.subspan(begin, k), value.subspan(begin, k)};
  }
};

/// Room for `most` elements. Their values go to `place`, if it is not empty.
List take_list(const Exec& exec, std::uint64_t most, bool variable_k, std::span<float> place = {});

/// Reads the size of a list whose k is variable, which a device must be waited for, and shortens
/// the spans to it.
void shorten(const Exec& exec, List& list);

/// Candidates that are expected among `count` positions that compete for k places, at most.
std::size_t list_room(std::size_t count, std::size_t k);

/// Room for `listed` candidates of what this rank owns of a piece; others name at most `most` of
/// its elements.
kernels::OwnedSums take_own_list(const Exec& exec, const Part& part, const Piece& piece,
                                 std::size_t listed, std::uint64_t most);

/// The job that draws the positions of a message with this header, in `room`. `status` is as in
/// Codings::drawing_key.
kernels::DecodeJob drawing(const Codings& codings, const Header& header,
                           const kernels::CallStatus* status, std::span<std::uint32_t> room);
/// The positions; none where it carries all.
std::span<const std::uint32_t> draw(const Exec& exec, const Codings& codings, const Header& header,
                                    const kernels::CallStatus* status,
                                    std::span<std::uint32_t> room);

/// Sets values that are about to be coded to 0 if their message is poisoned: by its header, or,
/// when the work runs, by a word that is not 0.
void clear_poisoned(const Exec& exec, const Header& header, std::span<const std::uint32_t> words,
                    std::span<float> values);

/// A list on its way into a message of `header`.
struct EncodeList {
  Header header;
  Shape shape;  ///< of the message
  kernels::RandomKey random;
  std::span<const std::uint32_t> index;
  std::span<float> value;                 ///< a lossy coding leaves here what it misses
  kernels::PoisonSources poison = {};     ///< as in finish_message
  kernels::CallStatus* status = nullptr;  ///< as in finish_message
};

/// Quantizes the values, unless they lie in the message already, and finishes it: the first bytes
/// of `out`. Returns the message as finish_message does.
MessageView encode_values(const Exec& exec, const Codings& codings, const EncodeList& list,
                          std::span<std::byte> out);
/// The two halves of it, for messages that are encoded together.
void code_values(const Exec& exec, const Codings& codings, const EncodeList& list,
                 std::span<std::byte> out);
MessageView finish_coded(const Exec& exec, const Codings& codings, const EncodeList& list,
                         std::span<std::byte> out);

/// Writes a finished message to the result.
inline void store_message(EncodeResult& out, std::uint32_t owner, const MessageView& message) {
  out.messages[owner] = out.messages[owner].first(message.bytes.size());
  std::visit([&](const auto& left) { left.keep(owner, message); }, out.left);
}

/// The residuals, zero at the positions of a list that was encoded, keep what its lossy coding
/// missed.
void keep_missed(const Exec& exec, const Part& part, const Owned& owned, const EncodeList& list);

/// Encodes messages to owners whose headers know their k: lists[owner], but for this rank's own.
/// The residuals keep what the coding misses.
void encode_together(const Exec& exec, const Codings& codings, const EncodeJob& job,
                     std::span<const EncodeList> lists, EncodeResult& out);

/// Encodes a list whose length the gradient decides, with neither k nor shape: the message carries
/// every position where that is no longer, with 0 where nothing was chosen.
MessageView encode_variable(const Exec& exec, const Codings& codings, EncodeList list,
                            std::span<std::byte> out);

}  // namespace winnow::compress
