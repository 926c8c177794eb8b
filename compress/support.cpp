// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/support.hpp"

#include <algorithm>

#include "kernels/exec/stopwatch.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {
namespace {

/// Codes values into a message that carries them all; what the coding misses is left in `value`.
void seal_values(const Exec& exec, const Codings& codings, const EncodeJob& job,
                 std::span<float> value, std::span<std::byte> out) {
  Header header = job.header;
  header.count = header.k = value.size();
  kernels::quantize(exec, codings.value, job.random, value,
                    lay_out(header.count, header.k, out, codings).value_part);
  seal(exec, header, {}, out, codings);
}

}  // namespace

void seal_support(const Exec& exec, const Codings& codings, const EncodeJob& job,
                  std::span<const std::uint32_t> index, std::span<std::byte> out) {
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = job.part.partition.local_count(job.part.self);
  header.k = job.part.owner_k[job.part.self];
  seal(exec, header, index, out, codings.without_values());
}

void take_values(const Exec& exec, const Codings& codings, const EncodeJob& job, Taken& taken,
                 std::span<std::byte> out) {
  const Workspace::Scope scope(*exec.workspace);
  kernels::OwnedJob owned = taken_job(exec, job.part, taken);
  const auto missed = exec.workspace->take<float>(out.empty() ? 0 : taken.value.size());
  kernels::take_owned(exec, owned, taken.value);  // what may fail for want of memory is done
  if (out.empty()) return;
  std::ranges::copy(taken.value, missed.begin());
  seal_values(exec, codings, job, missed, out);
  owned.values.value = missed;
  kernels::store_owned(exec, owned);
}

void add_values(const Exec& exec, const Codings& codings, const EncodeJob& job,
                std::span<const MessageView> terms, const Addition& out) {
  EncodeJob sealed = job;
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const Workspace::Scope scope(*exec.workspace);
    const auto in_order = exec.workspace->take<kernels::Term>(terms.size());
    std::ranges::transform(terms, in_order.begin(), term);
    std::uint32_t not_finite = 0;
    kernels::ordered_sum(exec, {.terms = {in_order}, .sum = out.sum, .not_finite = &not_finite});
    if (out.message.empty()) return;
    if (not_finite != 0) {
      sealed.header.flags |= Header::kPoison;
      std::ranges::fill(out.sum, 0.0F);
    }
  }
  // Where the support is every position, gaps travel too, and a sign, say, is never 0.
  if (out.sum.size() == job.part.partition.local_count(job.part.self)) {
    clear_own_gaps(exec, job.part, out.sum);
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  seal_values(exec, codings, sealed, out.sum, out.message);
}

MessageView join_values(const MessageView& support, const MessageView& values) {
  MessageView joined = support;
  joined.header.kind = Header::Kind::sum;
  joined.header.flags |= values.header.flags;
  joined.bytes = {};
  joined.value = values.value;
  joined.format = values.format;
  joined.coded = values.coded;
  return joined;
}

MessageView decode_values(const Exec& exec, MessageView message) {
  if (message.carries_all() || !message.value.empty() || message.coded.empty()) return message;
  const auto decoded = exec.workspace->take<float>(message.header.k);
  kernels::dequantize(exec, message.format, decoded.size(), message.coded, 0, decoded);
  message.value = decoded;
  return message;
}

}  // namespace winnow::compress
