// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/finish_message.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/checksum.hpp"
#include "kernels/cpu/index_coding.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels::cpu {

namespace {

bool is_poisoned(const FinishJob& job) {
  const PoisonSources& sources = job.poison;
  return (job.status != nullptr && job.status->spoiled != 0) ||
         std::ranges::any_of(sources.words, [](std::uint32_t word) { return word != 0; }) ||
         std::ranges::any_of(sources.results, [](const SelectResult& result) {
           return !result.finite || result.overflow;
         });
}

}  // namespace

void finish_message(const Exec& exec, const FinishJob& job) {
  std::byte* const header = job.message.data();
  std::ranges::copy(job.header, header);
  if (job.status != nullptr) {
    std::memcpy(header + job.layout.call_at, &job.status->call, sizeof job.status->call);
  }
  if (is_poisoned(job)) {
    std::uint16_t flags;
    std::memcpy(&flags, header + job.layout.flags_at, sizeof flags);
    flags |= job.layout.poison;
    std::memcpy(header + job.layout.flags_at, &flags, sizeof flags);
    if (job.status != nullptr) job.status->spoiled = 1;
  }
  std::ranges::fill(job.message.last(job.padding), std::byte{0});
  std::uint64_t sum = 0;  // which counts as zero itself
  std::memcpy(header + job.layout.checksum_at, &sum, sizeof sum);
  const std::span<const std::byte> message = job.message;
  kernels::checksums(exec, {&message, 1}, &sum);
  std::memcpy(header + job.layout.checksum_at, &sum, sizeof sum);
}

void finish_raw32(const Exec& exec, const FinishJob& job) {
  encode_raw32(job.index, job.message.subspan(kHeaderBytes, raw32_bytes(job.index.size())));
  cpu::finish_message(exec, job);
}

void finish_bitmap(const Exec& exec, const FinishJob& job) {
  encode_bitmap(job.index, job.message.subspan(kHeaderBytes, bitmap_bytes(job.count)));
  cpu::finish_message(exec, job);
}

}  // namespace winnow::kernels::cpu
