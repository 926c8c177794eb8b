// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>

#include "bench/micro/bench_kernels.hpp"
#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/random_entries.hpp"
#include "bench/micro/targets.hpp"
#include "kernels/checksum.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/index_coding.hpp"

// Coding and decoding messages: indices of a uniform support over kCount elements, in the cache as
// they are right after selection and arrival, finished with header and checksum as a message
// without values; and a checksum of kCount words from memory.

namespace winnow::bench {
namespace {

/// log2 C(count, k) / k: the fewest bits per index, on average, of any coding of uniform supports.
double entropy_bits(double count, double k) {
  const double log_choose =
      std::lgamma(count + 1) - std::lgamma(k + 1) - std::lgamma(count - k + 1);
  return log_choose / std::numbers::ln2 / k;
}

template <int kDensityInverse>
class Coded {
 public:
  void finish() {
    kernels::finish_eliasfano(Exec{}, {.message = message_.span(),
                                       .layout = {.flags_at = 6, .poison = 1, .checksum_at = 56},
                                       .count = kCount,
                                       .index = entries_.index.span()});
  }

  void decode() {
    std::uint32_t refused = 0;
    const kernels::DecodeJob job{.count = kCount,
                                 .in = message_.span().subspan(kernels::kHeaderBytes),
                                 .index = decoded_.span(),
                                 .refused = &refused};
    kernels::eliasfano_decode(Exec{}, {&job, 1});
    benchmark::DoNotOptimize(refused);
  }

  void measure(benchmark::State& state, const std::function<void()>& kernel) {
    const double seconds = KernelTimer::get().run(state, {.kernel = kernel, .warm = kernel});
    const auto k = static_cast<double>(kKept);
    const double bits = 8 * static_cast<double>(index_bytes()) / k;
    state.counters["ns_per_kept"] = 1e9 * seconds / k;
    state.counters["bits_per_index"] = bits;
    state.counters["of_entropy"] = bits / entropy_bits(static_cast<double>(kCount), k);
  }

 private:
  static constexpr std::size_t kKept = kCount / kDensityInverse;
  static std::size_t index_bytes() { return kernels::eliasfano_shape(kCount, kKept).bytes(); }
  Entries entries_ = random_entries(kCount, kKept, 1);
  kernels::HostArray<std::byte> message_{kernels::kHeaderBytes + index_bytes()};
  kernels::HostArray<std::uint32_t> decoded_{kKept};
};

template <int kDensityInverse>
void finish_eliasfano(benchmark::State& state) {
  Coded<kDensityInverse> coded;
  coded.measure(state, [&] { coded.finish(); });
}

template <int kDensityInverse>
void eliasfano_decode(benchmark::State& state) {
  Coded<kDensityInverse> coded;
  coded.finish();
  coded.measure(state, [&] { coded.decode(); });
}

void checksum(benchmark::State& state) {
  const kernels::HostArray<std::byte> words(4 * kCount);
  const double seconds =
      KernelTimer::get().run(state, {.kernel = [&] {
                               std::uint64_t sum = 0;
                               kernels::checksums(Exec{}, {{words.span()}}, &sum);
                               benchmark::DoNotOptimize(sum);
                             }});
  state.counters["GB_per_s"] = 1e-9 * static_cast<double>(words.size()) / seconds;
}

}  // namespace

void register_codec() {
  register_on_targets("finish_eliasfano", "density:0.01", finish_eliasfano<100>);
  register_on_targets("finish_eliasfano", "density:0.001", finish_eliasfano<1000>);
  register_on_targets("eliasfano_decode", "density:0.01", eliasfano_decode<100>);
  register_on_targets("eliasfano_decode", "density:0.001", eliasfano_decode<1000>);
  register_on_targets("checksum", std::to_string(kCount), checksum);
}

}  // namespace winnow::bench
