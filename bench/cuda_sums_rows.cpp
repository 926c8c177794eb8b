// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <memory>

#include "bench/cuda_inputs.hpp"
#include "kernels/cuda/feedback_select.hpp"
#include "kernels/cuda/select_sums.hpp"

namespace winnow::bench {

namespace {

using kernels::cuda::DeviceTerm;

/// What an owner of 8 does in a step of `balanced`: 7 ranks send it lists that lie evenly and
/// rarely meet, and it selects as many of the sums as each sent.
struct Sums {
  static constexpr std::uint32_t kRanks = 8;
  static constexpr float kBound = 2.5F;  // of |acc|: normal numbers reach it once in 80

  explicit Sums(const CudaInputs& in)
      : partition(kRanks, in.count),
        count(partition.local_count(0)),
        sent(std::clamp<std::size_t>(in.k / kRanks, 1, count)),
        residual(zeros<float>(in.count, in.stream)),
        own_value(in.k),
        value(sent),
        sum(most()),
        own_index(in.k),
        index(sent),
        touched(most()),
        terms(kRanks),
        scratch(kernels::cuda::select_sums_scratch(owned(), kRanks)) {
    make_list(in);
    std::vector<DeviceTerm> host(1, kernels::cuda::device_term({}));
    std::vector<std::uint32_t> positions(sent);
    for (std::uint32_t r = 1; r < kRanks; ++r) {
      for (std::size_t j = 0; j < sent; ++j) {
        positions[j] = static_cast<std::uint32_t>(count / sent * j + r % (count / sent));
      }
      term_index.emplace_back(sent).upload(positions, in.stream);
      fill(term_value.emplace_back(sent).span(), r, in.stream);
      host.push_back(kernels::cuda::device_term(
          {.index = term_index.back().span(), .value = term_value.back().span()}));
    }
    terms.upload(host, in.stream);
  }

  std::size_t most() const { return std::min((kRanks - 1) * sent, count); }
  kernels::OwnedSums owned() const {
    return {.own = {.partition = &partition,
                    .self = 0,
                    .bound = kBound,
                    .index = own_index.span(),
                    .value = own_value.span()},
            .residual = residual.span(),
            .begin = 0,
            .count = count,
            .most = most()};
  }

  /// Feeds back and selects once: what reaches the bound is listed, and acc is in the residual.
  void make_list(const CudaInputs& in) const {
    const DeviceArray<float> gradient(in.count), message(1);
    const DeviceArray<std::uint32_t> message_index(1);
    const DeviceArray<std::byte> room(kernels::cuda::feedback_select_scratch(in.count, 1));
    kernels::cuda::enqueue_copy(gradient.span(), in.set(0).gradient.span().first(in.count),
                                in.stream);
    kernels::cuda::feedback_select(in.exec(),
                                   {.spans = {gradient.span(), residual.span(), 1, owned().own},
                                    .index = message_index.span(),
                                    .value = message.span(),
                                    .state = in.set(0).state.data(),
                                    .result = fed.data(),
                                    .scratch = room.span()});
    in.stream.synchronize();
  }

  void step(const CudaInputs& in, std::size_t round) const {
    const auto& s = in.set(round);
    kernels::cuda::select_sums(in.exec(),
                               {.owned = owned(),
                                .fed = fed.data(),
                                .terms = terms.data(),
                                .term_count = kRanks,
                                .out = {index.span(), value.span(), touched.span(), sum.span()},
                                .touched_count = touched_count.data(),
                                .state = s.state.data(),
                                .result = s.result.data(),
                                .scratch = scratch.span()});
  }

  kernels::Partition partition;
  std::size_t count, sent;
  DeviceArray<float> residual, own_value, value, sum;
  DeviceArray<std::uint32_t> own_index, index, touched;
  std::deque<DeviceArray<std::uint32_t>> term_index;
  std::deque<DeviceArray<float>> term_value;
  DeviceArray<DeviceTerm> terms;
  DeviceArray<std::uint64_t> touched_count{1};
  DeviceArray<kernels::SelectResult> fed{1};
  DeviceArray<std::byte> scratch;
};

}  // namespace

/// Of an entry the index is read twice and the value once, with acc; index and sum are written. Of
/// the list each element is read, and a candidate written and read.
std::vector<CudaRow> sums_rows(const CudaInputs& in) {
  const auto sums = std::make_shared<const Sums>(in);
  const auto listed = static_cast<std::size_t>(sums->fed.download(in.stream)[0].listed);
  const auto bytes = static_cast<double>(24 * sums->most() + 24 * listed + 8 * sums->sent);
  return {{"select_sums of 8",
           bytes,
           [&in, sums](std::size_t round) { sums->step(in, round); },
           {},
           [&in](std::size_t round) { return in.set(round).result.download(in.stream)[0].passes; },
           true}};
}

}  // namespace winnow::bench
