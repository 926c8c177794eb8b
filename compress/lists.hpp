// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::compress {

// Lists of chosen elements, in scratch of exec.place.

struct List {
  std::span<std::uint32_t> index;
  std::span<float> value;
  std::uint64_t* size;  ///< if k is variable: how many there are, once the passes have run
};

/// Room for `most` elements. Their values go to `place`, if it is not empty.
List take_list(const Exec& exec, std::uint64_t most, bool variable_k, std::span<float> place = {});

/// Reads the size of a list, which a device must be waited for, and shortens the spans to it.
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
struct SealList {
  Header header;
  Shape shape;  ///< of the message
  kernels::RandomKey random;
  std::span<const std::uint32_t> index;
  std::span<float> value;                 ///< a lossy coding leaves here what it misses
  kernels::PoisonSources poison = {};     ///< as in seal
  kernels::CallStatus* status = nullptr;  ///< as in seal
};

/// Quantizes the values, unless they lie in the message already, and seals it: the first bytes of
/// `out`. Returns the message as seal does.
MessageView seal_values(const Exec& exec, const Codings& codings, const SealList& list,
                        std::span<std::byte> out);
/// The two halves of it, for messages that are sealed together.
void code_values(const Exec& exec, const Codings& codings, const SealList& list,
                 std::span<std::byte> out);
MessageView seal_coded(const Exec& exec, const Codings& codings, const SealList& list,
                       std::span<std::byte> out);

/// Seals a list whose length the gradient decides, with neither k nor shape: the message carries
/// every position where that is no longer, with 0 where nothing was chosen.
MessageView seal_variable(const Exec& exec, const Codings& codings, SealList list,
                          std::span<std::byte> out);

}  // namespace winnow::compress
