// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>
#include <winnow/stats.hpp>
#include <winnow/transport.hpp>

#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "compress/part.hpp"

namespace winnow::comm {

/// One part of a bucket on its way through a schedule: what the schedule works with, and what it
/// leaves behind. All memory is views; scratch comes from exec.workspace and lives as long as the
/// call.
struct Exchange {
  Transport& world;
  const compress::Compressor& compressor;
  const Exec& exec;
  Deadline deadline;
  bool bounded;  ///< the caller asked for the deadline: no collective that ignores it
  float decay;
  compress::Part& part;
  compress::Header header;    ///< of this call and part; kPoison set where the bucket is known bad
  kernels::RandomKey random;  ///< of this call, part and rank; part.partition.owners() stages of
                              ///< encode from its own on, then one of encode_sums
  Stats& stats;               ///< of the call; schedules add their times and bytes

  // What this rank took from its gradient, to put back: messages by owner, acc by local number.
  std::span<const std::span<std::byte>> own = {};
  std::span<const float> own_acc = {};

  // The outcome: messages to be added to the elements in their order; or sums, by owner, with what
  // they leave to this rank, by local number; or the sum itself.
  std::span<const compress::MessageView> messages = {};
  std::span<const compress::MessageView> sums = {};
  std::span<const float> left = {};
  std::span<float> sum = {};
  bool in_place = false;  ///< a collective works, or has worked, on the elements themselves
  bool poisoned = false;  ///< some rank's gradient was not finite
};

}  // namespace winnow::comm
