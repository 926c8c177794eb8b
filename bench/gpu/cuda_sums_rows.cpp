// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "bench/gpu/cuda_inputs.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::bench {

namespace {

/// One of 8 owners in a step of `balanced`: 7 ranks send it lists that lie evenly and rarely meet,
/// and it selects as many of the sums as each rank sent elements.
struct Sums {
  static constexpr std::uint32_t kRanks = 8;
  static constexpr float kBound = 2.5F;  // on |acc|: one normal number in 80 reaches it

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
        terms(1) {
    make_list(in);
    std::vector<std::uint32_t> positions(sent);
    for (std::uint32_t r = 1; r < kRanks; ++r) {
      for (std::size_t j = 0; j < sent; ++j) {
        positions[j] = static_cast<std::uint32_t>(count / sent * j + r % (count / sent));
      }
      term_index.emplace_back(sent).upload(positions, in.stream);
      fill(term_value.emplace_back(sent).span(), r, in.stream);
      terms.push_back({.index = term_index.back().span(), .value = term_value.back().span()});
    }
    placed = kernels::place_terms(in.exec(), terms);
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

  /// Feeds back and selects once: lists own elements that reach the bound, and leaves acc in the
  /// residual.
  void make_list(const CudaInputs& in) const {
    const DeviceArray<float> gradient(in.count), message(1);
    const DeviceArray<std::uint32_t> message_index(1);
    kernels::cuda::enqueue_copy(gradient.span(), in.set(0).gradient.span().first(in.count),
                                in.stream);
    const kernels::FeedbackSelectJob job{
        .spans = {gradient.span(), residual.span(), 1, owned().own},
        .index = message_index.span(),
        .value = message.span(),
        .state = in.set(0).state.data(),
        .result = accumulated.data()};
    kernels::feedback_select(in.exec(), {&job, 1});
    in.stream.synchronize();
  }

  void step(const CudaInputs& in, std::size_t round) const {
    const auto& s = in.set(round);
    const kernels::SelectSumsJob job{
        .owned = owned(),
        .accumulated = accumulated.data(),
        .terms = placed,
        .out = {index.span(), value.span(), touched.span(), sum.span()},
        .touched_count = touched_count.data(),
        .state = s.state.data(),
        .result = s.result.data()};
    kernels::select_sums(in.exec(), {&job, 1});
  }

  kernels::Partition partition;
  std::size_t count, sent;
  DeviceArray<float> residual, own_value, value, sum;
  DeviceArray<std::uint32_t> own_index, index, touched;
  std::deque<DeviceArray<std::uint32_t>> term_index;
  std::deque<DeviceArray<float>> term_value;
  std::vector<kernels::Term> terms;
  kernels::PlacedTerms placed;
  DeviceArray<std::uint64_t> touched_count{1};
  DeviceArray<kernels::SelectResult> accumulated{1};
};

/// An owner as in Sums, which keeps all sums that reach the bound and has room for all of them.
struct KeptSums {
  KeptSums(const CudaInputs& in, std::shared_ptr<const Sums> of)
      : sums(std::move(of)),
        own_value(sums->count),
        value(sums->count),
        sum(sums->count),
        own_index(sums->count),
        index(sums->count),
        touched(sums->count) {
    const std::size_t listed = std::min(sums->count, in.k);
    kernels::cuda::enqueue_copy(own_index.span().first(listed),
                                sums->own_index.span().first(listed), in.stream);
    kernels::cuda::enqueue_copy(own_value.span().first(listed),
                                sums->own_value.span().first(listed), in.stream);
  }

  kernels::OwnedSums owned() const {
    kernels::OwnedSums all = sums->owned();
    all.own.index = own_index.span();
    all.own.value = own_value.span();
    all.most = sums->count;
    return all;
  }

  void forget(const CudaInputs& in) const {
    WINNOW_CUDA_TRY(cudaMemsetAsync(kept.data(), 0, sizeof(std::uint64_t), in.stream.get()));
  }

  void step(const CudaInputs& in, std::size_t round) const {
    kernels::keep_sums(in.exec(), {.owned = owned(),
                                   .accumulated = sums->accumulated.data(),
                                   .terms = sums->placed,
                                   .out = {index.span(), value.span(), touched.span(), sum.span()},
                                   .kept = kept.data(),
                                   .touched_count = touched_count.data(),
                                   .result = in.set(round).result.data()});
  }

  std::shared_ptr<const Sums> sums;
  DeviceArray<float> own_value, value, sum;
  DeviceArray<std::uint32_t> own_index, index, touched;
  DeviceArray<std::uint64_t> kept{1}, touched_count{1};
};

CudaRow keep_row(const CudaInputs& in, const std::shared_ptr<const Sums>& sums,
                 std::size_t listed) {
  const auto all = std::make_shared<const KeptSums>(in, sums);
  all->forget(in);
  all->step(in, 0);
  const auto kept = static_cast<std::size_t>(all->kept.download(in.stream)[0]);
  return {"keep_sums of 8", static_cast<double>(24 * sums->most() + 8 * listed + 8 * kept),
          [&in, all](std::size_t round) { all->step(in, round); },
          [&in, all](std::size_t) { all->forget(in); }};
}

}  // namespace

/// A step reads each entry's index twice, and its value and acc once, and writes index and sum. It
/// reads each element of the list and writes a candidate, which it reads again if k decides.
void add_sums_rows(const CudaInputs& in, std::vector<CudaRow>& rows) {
  const auto sums = std::make_shared<const Sums>(in);
  const auto listed = static_cast<std::size_t>(sums->accumulated.download(in.stream)[0].listed);
  const auto bytes = static_cast<double>(24 * sums->most() + 24 * listed + 8 * sums->sent);
  rows.push_back(
      {"select_sums of 8",
       bytes,
       [&in, sums](std::size_t round) { sums->step(in, round); },
       {},
       [&in](std::size_t round) { return in.set(round).result.download(in.stream)[0].passes; },
       true});
  rows.push_back(keep_row(in, sums, listed));
}

}  // namespace winnow::bench
