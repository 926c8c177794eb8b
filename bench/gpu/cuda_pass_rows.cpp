// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "bench/gpu/cuda_inputs.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/half.hpp"
#include "kernels/residual_add.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::bench {

namespace {

using Rows = std::vector<CudaRow>;

void add_copy_and_add(const CudaInputs& in, Rows& rows) {
  const double floats = static_cast<double>(in.count * sizeof(float));
  rows.push_back({"copy", 2 * floats, [&in](std::size_t round) {
                    const auto& s = in.set(round);
                    kernels::cuda::enqueue_copy(s.target.span(), s.gradient.span().first(in.count),
                                                in.stream);
                  }});
  for (const std::size_t offset : {0U, 1U}) {
    rows.push_back({offset == 0 ? "residual_add" : "residual_add misaligned", 3 * floats,
                    [&in, offset](std::size_t round) {
                      const auto& s = in.set(round);
                      kernels::residual_add(in.exec(), s.target.span(),
                                            s.gradient.span().subspan(offset, in.count));
                    }});
  }
}

/// Rows of each coding, in both directions.
void add_values(const CudaInputs& in, Rows& rows) {
  const auto message = std::make_shared<DeviceArray<std::byte>>(in.count * sizeof(float) + 8);
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    for (const auto rounding : {kernels::Rounding::nearest, kernels::Rounding::stochastic}) {
      const kernels::ValueFormat format{&coding, coding.default_block, rounding};
      if (!kernels::valid_format(format)) continue;
      const std::uint64_t bytes = kernels::value_bytes(format, in.count);
      const bool stochastic = rounding == kernels::Rounding::stochastic;
      const std::string name = std::string(coding.name) + (stochastic ? " stochastic" : "");
      rows.push_back(
          {"feedback_quantize " + name, static_cast<double>(3 * in.count * sizeof(float) + bytes),
           [&in, message, format, bytes](std::size_t round) {
             const auto& s = in.set(round);
             const kernels::FeedbackPiece piece{s.gradient.span().first(in.count),
                                                s.residual.span(), 0};
             const std::span<std::byte> out = message->span().first(bytes);
             kernels::feedback_quantize(in.exec(), {.pieces = {{&piece, 1}, nullptr},
                                                    .partition = kernels::Partition(1, in.count),
                                                    .format = format,
                                                    .key = {.call = round},
                                                    .out = {&out, 1},
                                                    .not_finite = s.not_finite.data()});
           }});
      if (stochastic) continue;
      rows.push_back({"dequantize " + name, static_cast<double>(in.count * sizeof(float) + bytes),
                      [&in, message, format, bytes](std::size_t round) {
                        kernels::dequantize(in.exec(), format, in.count,
                                            message->span().first(bytes), 0,
                                            in.set(round).target.span());
                      }});
    }
  }
}

/// The output of a selection; with several owners, half of it is the list of own elements.
struct Selection {
  Selection(const CudaInputs& in, std::uint32_t owners, bool divides_by_moment = false)
      : divides(divides_by_moment),
        partition(owners, in.count),
        index(in.k),
        own_index(in.k),
        value(in.k),
        own_value(in.k) {}

  /// From now on the gradient is given as bf16.
  void take_halves(const CudaInputs& in) { halves = DeviceArray<std::uint16_t>(in.count); }
  /// Before a round's steps.
  void prepare(const CudaInputs& in, std::size_t round) const {
    if (halves.span().empty()) return;
    kernels::narrow(in.exec(), ElementType::bf16, in.set(round).gradient.span().first(in.count),
                    halves.span());
  }

  void step(const CudaInputs& in, std::size_t round) const {
    const auto& s = in.set(round);
    kernels::FeedbackSpans spans{s.gradient.span().first(in.count), s.residual.span()};
    if (!halves.span().empty()) spans.gradient = {halves.data(), in.count, ElementType::bf16};
    std::size_t k = in.k;
    if (divides) {  // by 1, and the moment stays, so that all rounds have the same numbers
      spans.precondition = {.kind = kernels::Precondition::Kind::second_moment,
                            .moment = s.target.data(),
                            .divide = {.decay = 1, .correction = 0, .floor = 1}};
    }
    if (partition.owners() > 1) {
      // As many own elements reach kBound as a selection would take of them.
      spans.own = {&partition, 0, 0, kBound, own_index.span(), own_value.span()};
      k = std::max<std::size_t>(k - k / partition.owners(), 1);
    }
    const kernels::FeedbackSelectJob job{.spans = spans,
                                         .index = index.span().first(k),
                                         .value = value.span().first(k),
                                         .state = s.state.data(),
                                         .result = s.result.data(),
                                         .gradient_after = kernels::GradientAfter::accumulated};
    kernels::feedback_select(in.exec(), {&job, 1});
  }

  static constexpr float kBound = 2.5F;  // on |acc|: one normal number in 80 reaches it
  bool divides;
  kernels::Partition partition;
  DeviceArray<std::uint32_t> index, own_index;
  DeviceArray<float> value, own_value;
  DeviceArray<std::uint16_t> halves{0};
};

/// Each round begins with a residual of zeros. Otherwise unselected elements would add up in the
/// residual from round to round, and no bound would be good for two rounds.
void clear_residual(const CudaInputs& in, std::size_t round) {
  const std::span<float> residual = in.set(round).residual.span();
  WINNOW_CUDA_TRY(cudaMemsetAsync(residual.data(), 0, residual.size_bytes(), in.stream.get()));
}

/// A selection writes and reads the candidates, and writes the message: 8 bytes each time.
void add_select(const CudaInputs& in, Rows& rows) {
  constexpr std::uint32_t kOwners = 8;
  const auto bytes = static_cast<double>(3 * in.count * sizeof(float) + 24 * in.k);
  const auto passes = [&in](std::size_t round) {
    return in.set(round).result.download(in.stream)[0].passes;
  };
  const auto alone = std::make_shared<Selection>(in, 1);
  const auto shared = std::make_shared<Selection>(in, kOwners);
  const auto forget = [&in](std::size_t round) {
    clear_residual(in, round);
    WINNOW_CUDA_TRY(cudaMemsetAsync(in.set(round).state.data(), 0, sizeof(kernels::SelectBound),
                                    in.stream.get()));
  };
  // A sample does not always give a good bound.
  rows.push_back({"feedback_select first step", bytes,
                  [&in, alone](std::size_t round) { alone->step(in, round); }, forget, passes,
                  true});
  const auto add_carried = [&](const char* name, const std::shared_ptr<Selection>& selection,
                               double moved) {
    // The rows share a state, but each has its own k; so each learns its bound in a step before.
    const auto learn = [&in, selection](std::size_t round) {
      selection->prepare(in, round);
      clear_residual(in, round);
      selection->step(in, round);
      clear_residual(in, round);
    };
    rows.push_back({name, moved,
                    [&in, selection](std::size_t round) { selection->step(in, round); }, learn,
                    passes});
  };
  add_carried("feedback_select carried bound", alone, bytes);
  add_carried("feedback_select of 8 owners", shared, bytes);
  const auto halves = std::make_shared<Selection>(in, 1);
  halves->take_halves(in);
  add_carried("feedback_select of bf16", halves,
              bytes - static_cast<double>(in.count * sizeof(std::uint16_t)));
  const auto moments = static_cast<double>(2 * in.count * sizeof(float));
  add_carried("feedback_select and divide_by_moment", std::make_shared<Selection>(in, 1, true),
              bytes + moments);
}

/// The list has room for all elements that reach Selection's bound.
void add_threshold(const CudaInputs& in, Rows& rows) {
  struct List {
    DeviceArray<std::uint32_t> index;
    DeviceArray<float> value;
    DeviceArray<std::uint64_t> kept{1};
  };
  const auto list = std::make_shared<const List>(
      List{.index = DeviceArray<std::uint32_t>(in.count), .value = DeviceArray<float>(in.count)});
  const auto step = [&in, list](std::size_t round) {
    const auto& s = in.set(round);
    kernels::feedback_threshold(in.exec(),
                                {.spans = {s.gradient.span().first(in.count), s.residual.span()},
                                 .bound = Selection::kBound,
                                 .index = list->index.span(),
                                 .value = list->value.span(),
                                 .kept = list->kept.data(),
                                 .result = s.result.data(),
                                 .gradient_after = kernels::GradientAfter::accumulated});
  };
  const auto forget = [&in, list](std::size_t round) {
    clear_residual(in, round);
    WINNOW_CUDA_TRY(cudaMemsetAsync(list->kept.data(), 0, sizeof(std::uint64_t), in.stream.get()));
  };
  forget(0);
  step(0);
  const auto kept = static_cast<std::size_t>(list->kept.download(in.stream)[0]);
  rows.push_back({"feedback_threshold",
                  static_cast<double>(3 * in.count * sizeof(float) + 8 * kept), step, forget});
}

}  // namespace

void add_pass_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows) {
  add_copy_and_add(inputs, rows);
  add_values(inputs, rows);
  add_select(inputs, rows);
  add_threshold(inputs, rows);
}

}  // namespace winnow::bench
