// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <winnow/exec.hpp>
#include <winnow/transport.hpp>

#include "compress/message.hpp"

namespace winnow::comm {

/// Texts that a rank adds to its header, for error messages.
struct OwnWords {
  std::string_view refusal = {};  ///< why it has set Header::kRefused, or empty
  std::string_view options = {};  ///< abridged_options of those of the digest
  /// lines_of it, if there is one; asked if ranks differ.
  std::function<std::string()> bucket = {};
};

/// One small all-gather of headers. Returns nothing if every rank has sent the same digest, bucket,
/// call, count and k as `mine` and none has sent Header::kRefused. Otherwise returns, on every
/// rank, why they cannot go on: a rank that differs and how, or words.refusal, this rank's own
/// reason if it set kRefused. If ranks differ, a second all-gather of kMostWords bytes each says
/// why a rank refuses, or else which option it is, or which parameter. Throws CommError if a rank
/// sends something else altogether, of kind `usage` unless that is damaged.
std::string agree(Transport& world, const Exec& exec, compress::Header mine, const OwnWords& words,
                  Deadline deadline);

}  // namespace winnow::comm
