// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"
#include "kernels/cpu/feedback_runs.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/values/message_writer.hpp"

namespace winnow::kernels::cpu {

namespace {

CodingBody body_of(const ValueCoding& coding) {
  CodingBody body{};
  visit_coding(coding, [&](auto c) { body = coding_body<decltype(c)>(); });
  return body;
}

/// Runs body(begin, end) on ranges of [0, count) whose borders are multiples of `step`.
template <class Body>
void for_each_stepped_range(int threads, std::uint64_t count, std::uint64_t step,
                            const Body& body) {
  for_each_range(threads, count, [&](std::uint64_t begin, std::uint64_t end) {
    begin = begin / step * step;
    if (end != count) end = end / step * step;
    if (begin < end) body(begin, end);
  });
}

bool are_sound(const Exec& exec, const ValueFormat& format, std::uint64_t k,
               std::span<const std::byte> coded) {
  const ValueLayout layout(format, k);
  const CodingBody body = body_of(*format.coding);
  const std::byte* const codes = coded.data() + layout.scale_bytes;
  bool valid = true;
  visit_coding(*format.coding, [&](auto coding) {
    for (std::uint64_t i = 0; i < layout.scales; ++i) {
      std::uint32_t scale;
      std::memcpy(&scale, coded.data() + i * sizeof scale, sizeof scale);
      valid = valid && values::is_scale<decltype(coding)>(scale);
    }
  });
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  const std::uint64_t last_bits = k * format.coding->bits % 8;
  valid = valid && std::all_of(coded.data() + layout.scales * sizeof(float), codes, is_zero) &&
          std::all_of(codes + layout.code_bytes, coded.data() + coded.size(), is_zero) &&
          (last_bits == 0 || is_zero(codes[layout.code_bytes - 1] >> static_cast<int>(last_bits)));
  std::atomic<bool> all_valid{valid};
  if (valid && body.valid != nullptr) {
    for_each_range(exec.threads, layout.code_bytes, [&](std::size_t begin, std::size_t end) {
      if (!body.valid(codes + begin, end - begin)) {
        all_valid.store(false, std::memory_order_relaxed);
      }
    });
  }
  return all_valid.load(std::memory_order_relaxed);
}

}  // namespace

void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out) {
  const MessageWriter writer(format, body_of(*format.coding), key, values.size(), out);
  const std::size_t chunk = writer.chunk();
  writer.write_padding();
  for_each_stepped_range(exec.threads, values.size(), chunk, [&](std::size_t i, std::size_t end) {
    for (; i < end; i += chunk) {
      const std::span<float> x = values.subspan(i, std::min(chunk, end - i));
      writer.write_scales(i, x.data(), x.size());
      writer.write_codes(i, x.data(), x.size(), x.data());
    }
  });
}

void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job) {
  const CodingBody body = body_of(*job.format.coding);
  const std::uint32_t owners = job.partition.owners();
  Workspace::Scope scope(*exec.workspace);
  const std::span<MessageWriter> writers = exec.workspace->take<MessageWriter>(owners);
  for (std::uint32_t o = 0; o < owners; ++o) {
    if (o == job.self) continue;
    RandomKey stage = job.key;
    stage.stage += o;
    writers[o] = MessageWriter(job.format, body, stage, job.partition.local_count(o), job.out[o]);
    writers[o].write_padding();
  }
  if (!walk_feedback(exec, job, writers)) *job.not_finite = 1;
}

void check_values(const Exec& exec, const ValueFormat& format,
                  std::span<const CheckValuesJob> jobs) {
  for (const CheckValuesJob& job : jobs) {
    if (!are_sound(exec, format, job.k, job.coded)) *job.refused = 1;
  }
}

void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out) {
  const ValueLayout layout(format, k);
  const CodingBody body = body_of(*format.coding);
  const std::uint32_t bits = format.coding->bits;
  const std::byte* const codes = coded.data() + layout.scale_bytes;
  for_each_range(exec.threads, out.size(), [&](std::size_t from, std::size_t to) {
    while (from < to) {
      const std::uint64_t first = begin + from;
      const std::uint64_t block_end =
          format.block == 0 ? k : (first / format.block + 1) * format.block;
      float scale = 0;
      if (format.block != 0) {
        std::memcpy(&scale, coded.data() + first / format.block * sizeof scale, sizeof scale);
      }
      const std::uint64_t unit = first / kUnit * kUnit;
      std::size_t n = std::min<std::uint64_t>(to - from, block_end - first);
      if (first == unit && n >= kUnit) {
        n = n / kUnit * kUnit;
        body.decode(codes + first * bits / 8, scale, n / kUnit, out.data() + from);
      } else {
        std::byte part[kUnit * sizeof(float)] = {};
        float values[kUnit];
        const std::uint64_t at = unit * bits / 8;
        std::memcpy(part, codes + at,
                    std::min<std::uint64_t>(kUnit * bits / 8, layout.code_bytes - at));
        body.decode(part, scale, 1, values);
        n = std::min<std::uint64_t>(n, unit + kUnit - first);
        std::copy_n(values + (first - unit), n, out.data() + from);
      }
      from += n;
    }
  });
}

}  // namespace winnow::kernels::cpu
