// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>

#include "kernels/cuda/add_to.hpp"
#include "kernels/cuda/eliasfano.hpp"
#include "kernels/cuda/feedback_select.hpp"
#include "kernels/cuda/residual_add.hpp"
#include "kernels/cuda/try.hpp"
#include "kernels/cuda/value_coding.hpp"

namespace winnow::bench {

namespace {

struct DeviceFree {
  void operator()(void* memory) const noexcept { (void)cudaFree(memory); }
};

/// Zeroed device memory for `count` objects.
template <class T>
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t count) : count_(count) {
    void* memory = nullptr;
    WINNOW_CUDA_TRY(cudaMalloc(&memory, std::max<std::size_t>(count * sizeof(T), 1)));
    memory_.reset(static_cast<T*>(memory));
    WINNOW_CUDA_TRY(cudaMemset(memory, 0, count * sizeof(T)));
  }
  T* data() const { return memory_.get(); }
  std::span<T> span() const { return {memory_.get(), count_}; }

 private:
  std::unique_ptr<T, DeviceFree> memory_;
  std::size_t count_;
};

/// Normal numbers, from a pattern that repeats.
void fill(std::span<float> device, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(std::min<std::size_t>(device.size(), std::size_t{1} << 22));
  std::generate(pattern.begin(), pattern.end(), [&] { return normal(random); });
  for (std::size_t at = 0; at < device.size(); at += pattern.size()) {
    const std::size_t count = std::min(pattern.size(), device.size() - at);
    WINNOW_CUDA_TRY(cudaMemcpy(device.data() + at, pattern.data(), count * sizeof(float),
                               cudaMemcpyHostToDevice));
  }
}

/// What one round works on.
struct Set {
  explicit Set(std::size_t count, std::uint32_t seed)
      : gradient(count + 1), residual(count), target(count) {
    fill(gradient.span(), seed);
  }
  DeviceMemory<float> gradient;  // one more, for a gradient that does not lie as the residual does
  DeviceMemory<float> residual, target;
  DeviceMemory<kernels::SelectBound> state{1};
  DeviceMemory<kernels::SelectResult> result{1};
  DeviceMemory<std::uint32_t> not_finite{1};
};

}  // namespace

struct CudaRows::Impl {
  Impl(cudaStream_t on, std::size_t elements, double density, std::size_t l2_bytes)
      : stream(on),
        count(elements),
        k(static_cast<std::size_t>(std::ceil(density * static_cast<double>(elements)))),
        index(k),
        value(k),
        message(count * sizeof(float) + 8),
        scratch(kernels::cuda::feedback_select_scratch(count, k)),
        decode_scratch(kernels::cuda::eliasfano_decode_scratch(count, k)),
        list_index(kLists * k),
        list_value(kLists * k) {
    const std::size_t bytes = count * sizeof(float);
    // Until a set's turn comes again, the others have passed through the cache.
    const std::size_t most = 2 * l2_bytes / bytes + 1;
    for (std::uint32_t s = 0; s < most; ++s) sets.emplace_back(count, s);
    make_lists();
  }

  Exec exec() const { return {.place = Place::cuda, .stream = stream}; }
  const Set& set(std::size_t round) const { return sets[round % sets.size()]; }

  void add_copy_and_add() {
    const double floats = static_cast<double>(count * sizeof(float));
    rows.push_back({"copy", 2 * floats, [this](std::size_t round) {
                      const Set& s = set(round);
                      WINNOW_CUDA_TRY(cudaMemcpyAsync(s.target.data(), s.gradient.data(),
                                                      count * sizeof(float),
                                                      cudaMemcpyDeviceToDevice, stream));
                    }});
    for (const std::size_t offset : {0U, 1U}) {
      rows.push_back({offset == 0 ? "residual_add" : "residual_add misaligned", 3 * floats,
                      [this, offset](std::size_t round) {
                        const Set& s = set(round);
                        kernels::cuda::residual_add(exec(), s.target.span(),
                                                    s.gradient.span().subspan(offset, count));
                      }});
    }
  }

  void add_quantize() {
    for (const kernels::ValueCoding& coding : kernels::value_codings()) {
      for (const auto rounding : {kernels::Rounding::nearest, kernels::Rounding::stochastic}) {
        const kernels::ValueFormat format{&coding, coding.default_block, rounding};
        if (!kernels::valid_format(format)) continue;
        const std::uint64_t bytes = kernels::value_bytes(format, count);
        const bool stochastic = rounding == kernels::Rounding::stochastic;
        rows.push_back(
            {"feedback_quantize " + std::string(coding.name) + (stochastic ? " stochastic" : ""),
             static_cast<double>(3 * count * sizeof(float) + bytes),
             [this, format, bytes](std::size_t round) { quantize(format, bytes, round); }});
      }
    }
  }

  void quantize(const kernels::ValueFormat& format, std::uint64_t bytes, std::size_t round) const {
    const Set& s = set(round);
    const kernels::FeedbackPiece piece{s.gradient.span().first(count), s.residual.span(), 0};
    kernels::cuda::feedback_quantize(exec(),
                                     {.pieces = {&piece, 1},
                                      .count = count,
                                      .out = message.span().first(bytes),
                                      .not_finite = s.not_finite.data()},
                                     format, {.call = round});
  }

  /// Candidates are written and read again, and the message is written: 8 bytes each time.
  void add_select() {
    const auto bytes = static_cast<double>(3 * count * sizeof(float) + 24 * k);
    const auto work = [this](std::size_t round) { select(round); };
    rows.push_back({"feedback_select first step", bytes, work, [this](std::size_t round) {
                      WINNOW_CUDA_TRY(cudaMemsetAsync(set(round).state.data(), 0,
                                                      sizeof(kernels::SelectBound), stream));
                    }});
    rows.push_back({"feedback_select carried bound", bytes, work});
  }

  void select(std::size_t round) const {
    const Set& s = set(round);
    kernels::cuda::feedback_select(exec(),
                                   {.spans = {s.gradient.span().first(count), s.residual.span()},
                                    .index = index.span(),
                                    .value = value.span(),
                                    .state = s.state.data(),
                                    .result = s.result.data(),
                                    .gradient_after = kernels::cuda::GradientAfter::unspecified,
                                    .scratch = scratch.span()});
  }

  /// 8 lists that lie evenly and rarely meet, as messages of 8 ranks.
  void make_lists() {
    std::vector<kernels::SparseView> views;
    std::vector<std::uint32_t> host(k);
    for (std::uint32_t r = 0; r < kLists; ++r) {
      for (std::size_t j = 0; j < k; ++j) {
        host[j] = static_cast<std::uint32_t>(count / k * j + r % (count / k));
      }
      WINNOW_CUDA_TRY(cudaMemcpy(list_index.data() + r * k, host.data(), k * sizeof(std::uint32_t),
                                 cudaMemcpyHostToDevice));
      views.push_back({list_index.span().subspan(r * k, k), list_value.span().subspan(r * k, k)});
    }
    fill(list_value.span(), kLists);
    WINNOW_CUDA_TRY(cudaMemcpy(lists.data(), views.data(), kLists * sizeof(kernels::SparseView),
                               cudaMemcpyHostToDevice));
  }

  /// The decoder reads the indices once more, to see that they ascend.
  void add_index_coding() {
    const std::size_t bytes = kernels::eliasfano_shape(count, k).bytes();
    rows.push_back({"eliasfano_encode", static_cast<double>(bytes + 4 * k), [this, bytes](auto) {
                      kernels::eliasfano_encode(exec(), count, list_index.span().first(k),
                                                message.span().first(bytes));
                    }});
    rows.push_back({"eliasfano_decode", static_cast<double>(bytes + 8 * k), [this, bytes](auto) {
                      kernels::cuda::eliasfano_decode(
                          exec(), {count, message.span().first(bytes), index.span(), refused.data(),
                                   decode_scratch.span()});
                    }});
  }

  void add_sum() {
    const auto bytes = static_cast<double>(8 * kLists * k + count * sizeof(float));
    rows.push_back({"ordered_sum of 8", bytes, [this](std::size_t round) {
                      const Set& s = set(round);
                      kernels::cuda::ordered_sum(exec(), {.lists = lists.data(),
                                                          .list_count = kLists,
                                                          .sum = s.target.span(),
                                                          .not_finite = s.not_finite.data()});
                    }});
  }

  static constexpr std::uint32_t kLists = 8;

  cudaStream_t stream;
  std::size_t count, k;
  std::deque<Set> sets;
  DeviceMemory<std::uint32_t> index;
  DeviceMemory<float> value;
  DeviceMemory<std::byte> message, scratch, decode_scratch;
  DeviceMemory<std::uint32_t> refused{1};
  DeviceMemory<std::uint32_t> list_index;
  DeviceMemory<float> list_value;
  DeviceMemory<kernels::SparseView> lists{kLists};
  std::vector<CudaRow> rows;
};

CudaRows::CudaRows(cudaStream_t stream, std::size_t count, double density, std::size_t l2_bytes)
    : impl_(std::make_unique<Impl>(stream, count, density, l2_bytes)) {
  impl_->add_copy_and_add();
  impl_->add_quantize();
  impl_->add_select();
  impl_->add_index_coding();
  impl_->add_sum();
}
CudaRows::~CudaRows() = default;

const std::vector<CudaRow>& CudaRows::all() const {
  return impl_->rows;
}

}  // namespace winnow::bench
