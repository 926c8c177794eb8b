// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/request.hpp"

#include "comm/schedule/pipeline.hpp"
#include "comm/schedule/rests.hpp"
#include "compress/part.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {
namespace {

/// Whether the sums of these parts are finite.
bool sums_are_finite(const Exec& exec, std::span<const Exchange> parts) {
  if (parts.empty()) return true;  // no answer to wait for
  const auto look = [&](std::uint32_t* not_finite) {
    for (const Exchange& exchange : parts) {
      kernels::all_finite(exec, sum_of(exchange), not_finite);
    }
  };
  return kernels::answer(exec, look) == 0;
}

}  // namespace

std::string Request::lines(const Options& options) const {
  return lines_of(segments_, op_, options);
}

std::string Request::refusal(const Setup& setup, const ParameterStates& states) const {
  if (op_ > ReduceOp::product) {
    return "operation " + std::to_string(static_cast<int>(op_)) + " is none of ReduceOp";
  }
  std::string refusal = refuse(segments_, states, is_plain());
  if (refusal.empty()) refusal = refuse_memory(segments_, setup.exec().place);
  return refusal;
}

Bucket Request::plan(std::uint64_t id, const Options& options, const World& world,
                     const compress::Compressor& compressor, ParameterStates& states) const {
  return plan_bucket(id, segments_, options, world, compressor, states);
}

/// Sums compressed parts before dense ones begin, and writes sums that overwrite a gradient last,
/// so that any failure can be restored from.
bool Request::reduce(const CallParts& call) const {
  const std::size_t count = call.bucket.compressed;
  const auto compressed = call.exchanges.first(count), dense = call.exchanges.subspan(count);
  const bool finite = all_agree(call, run_parts(call.schedules.first(count), compressed));
  // Dense sums need no poison bit: they are not finite if a gradient is not. They run in any case,
  // since other ranks may not have looked at the compressed parts yet.
  if (!run_parts(call.schedules.subspan(count), dense) || !finite) return false;
  const kernels::Stopwatch watch(call.stats.add_seconds);
  if (call.bucket.mixed() && !sums_are_finite(call.exec(), dense)) return false;
  write_sums(call, call.exec());
  return true;
}

void write_sums(const CallParts& call, const Exec& exec) {
  for (std::size_t i = 0; i < call.exchanges.size(); ++i) {
    if (call.schedules[i]->write != nullptr) call.schedules[i]->write(call.exchanges[i], exec);
  }
  for (std::size_t i = 0; i < call.bucket.compressed; ++i) {
    const Exchange& exchange = call.exchanges[i];
    compress::store_remainder(exec, exchange.part, exchange.owned);
    const Schedule& schedule = *call.schedules[i];
    if (schedule.write == nullptr) keep_rests(schedule, exchange, exec, call.is_first);
  }
}

}  // namespace winnow::comm
