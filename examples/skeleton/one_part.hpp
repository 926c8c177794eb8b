// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>
#include <winnow/workspace.hpp>

#include "comm/schedule/schedule.hpp"
#include "topology/link_model.hpp"

namespace winnow::tests {

struct Ran {
  std::vector<float> sum, residual;
  std::vector<std::vector<std::byte>> messages;  // by rank
  Stats stats;
};

/// Sums one part of one parameter, whose residual is empty, as `comm/call` does for a bucket.
inline Ran run_part(const comm::Schedule& schedule, Transport& world,
                    const compress::Compressor& compressor, std::vector<float> gradient) {
  Workspace workspace;
  const Exec exec{.workspace = &workspace};
  const Workspace::Scope scope(workspace);
  compress::ParameterState parameter;
  parameter.count = parameter.piece_length = gradient.size();
  parameter.pieces.resize(1);
  compress::Part part;
  part.count = gradient.size();
  part.pieces = {{.elements = gradient, .parameter = &parameter, .state = parameter.pieces.data()}};
  compress::make_residual(exec, parameter);
  comm::share_out(part, schedule, compressor, world.size(), world.rank());
  Ran ran;
  comm::Exchange exchange{
      .wire = {.world = world, .deadline = Deadline::never(), .stats = ran.stats},
      .compressor = compressor,
      .exec = exec,
      .scaling = {.decay = 1, .factor = 1},
      .course = {.ring = LinkModel::kNever},
      .part = part,
      .header = {.count = part.count, .k = part.k},
      .random = {.rank = static_cast<std::uint32_t>(world.rank())}};
  comm::Rounds rounds = schedule.run_part(exchange);
  while (rounds.resume()) world.wait(rounds.ticket(), exchange.wire.deadline);
  ran.sum.resize(part.count);
  for (const compress::MessageView& message : comm::messages_of(exchange)) {
    ran.messages.emplace_back(message.bytes.begin(), message.bytes.end());
    for (std::size_t i = 0; i < message.term.value.size(); ++i) {
      ran.sum[message.carries_all() ? i : message.term.index[i]] += message.term.value[i];
    }
  }
  const std::span<const float> residual = parameter.residual.span();
  ran.residual.assign(residual.begin(), residual.end());
  return ran;
}

}  // namespace winnow::tests
