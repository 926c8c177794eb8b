// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A call that finds no memory has changed nothing, if plan_scratch has seen its part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::tests {
namespace {

using compress::Part;

/// Parameters of a bucket, as one part.
class Parameters {
 public:
  explicit Parameters(std::span<const std::uint64_t> counts)
      : values_(gradients(counts)), before_(values_) {
    for (std::vector<float>& values : values_) {
      const std::uint64_t count = values.size();
      auto& state = states_.emplace_back();
      state.count = count;
      state.pieces.resize(1);
      compress::make_residual({}, state);
      part.pieces.push_back({.elements = Elements(std::span(values)),
                             .parameter = &state,
                             .state = &state.pieces.front(),
                             .base = static_cast<std::uint32_t>(part.count)});
      part.count += (count + 63) / 64 * 64;
    }
  }
  /// Whether a pass has run.
  bool changed() const {
    for (const compress::ParameterState& state : states_) {
      for (const float value : state.residual.span()) {
        if (value != 0) return true;
      }
    }
    return values_ != before_;
  }
  /// Whether a selection among sums has ended, of some piece.
  bool has_selected_sums() const {
    return std::ranges::any_of(part.pieces, [](const compress::Piece& piece) {
      return piece.state->bounds->sum_bound.bound != 0;
    });
  }

  Part part;

 private:
  static std::vector<std::vector<float>> gradients(std::span<const std::uint64_t> counts) {
    std::vector<std::vector<float>> all;
    for (const std::uint64_t count : counts) {
      std::vector<float>& values = all.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>((i * 2654435761U) % 65536) / 65536 - 0.5F;
      }
    }
    return all;
  }

  std::deque<compress::ParameterState> states_;
  std::vector<std::vector<float>> values_, before_;
};

std::function<bool()> has_changed;
int late = 0;  // allocations after something had changed

std::byte* allocate(std::size_t bytes) {
  if (has_changed && has_changed()) ++late;
  return static_cast<std::byte*>(std::aligned_alloc(64, bytes));
}
void release(std::byte* memory) noexcept {
  std::free(memory);
}
constexpr MemorySource kWatched{.allocate = allocate, .release = release};

enum class Planned { nothing, gradients, all };

struct Call {
  std::vector<std::uint64_t> counts;
  std::uint32_t owners;
  int threads;
  Planned planned;
};

/// Encodes a gradient, and an owner the sums without what other ranks keep, with the scratch that
/// is planned, or without a plan.
void encode(const compress::Compressor& compressor, const Call& call) {
  const auto& [counts, owners, threads, planned] = call;
  Parameters parameters(counts);
  Part& part = parameters.part;
  compress::share_out(part, compressor, owners, owners == 1 ? Part::kNobody : owners - 1);
  Workspace plans, scratch(kWatched);
  if (planned != Planned::nothing) {
    compress::plan_scratch({.threads = threads, .workspace = &plans}, compressor, part);
  }
  if (planned == Planned::gradients) part.scratch.sums = 0;
  const Exec exec{.threads = threads, .workspace = &scratch};
  std::vector<std::vector<std::uint64_t>> buffers;
  std::vector<std::span<std::byte>> messages;
  for (const compress::Shape& shape : part.shapes.gradients) {
    buffers.emplace_back(shape.bytes() / 8);
    messages.push_back(std::as_writable_bytes(std::span(buffers.back())));
  }
  if (owners > 1) messages.back() = {};
  compress::EncodeResult out{.messages = messages};
  const kernels::ScratchScope scope(exec);
  has_changed = [&] { return parameters.changed(); };
  compressor.encode(exec, {.part = part, .header = {}, .random = {}}, out);
  has_changed = nullptr;
  EXPECT_TRUE(parameters.changed());
  if (owners == 1 || compressor.knows_support()) return;  // then no sums are selected

  Workspace of_sums(kWatched);
  const Exec sums_exec{.threads = threads, .workspace = &of_sums};
  const kernels::ScratchScope sums_scope(sums_exec);
  const std::vector<compress::MessageView> contributions(owners);
  std::vector<std::uint64_t> sums(part.shapes.sums[part.self].bytes() / 8);
  has_changed = [&] { return parameters.has_selected_sums(); };
  compressor.encode_sums(sums_exec, {.part = part, .header = {}, .random = {}}, contributions,
                         out.owned, std::as_writable_bytes(std::span(sums)));
  has_changed = nullptr;
}

TEST(Scratch, IsThereBeforeAPassChangesAnything) {
  for (const char* name : {"topk:0.01", "topk:0.3,int8", "topk:0.01,mean", "blocktopk:4/64",
                           "threshold:0.49", "threshold:0.1,int8", "randomk:0.05"}) {
    const auto compressor = compress::make_compressor(name);
    for (const std::uint32_t owners : {1U, 2U, 7U}) {
      if (owners > 1 && compressor->one_sign()) continue;
      for (const int threads : {1, 3}) {
        late = 0;
        encode(*compressor, {{333, 70001, 64, 1, 1'000'000, 0}, owners, threads, Planned::all});
        EXPECT_EQ(late, 0) << name << ", " << owners << " owners, " << threads << " threads";
      }
    }
  }
}

TEST(Scratch, IsAllocatedLateWithoutAPlan) {
  late = 0;
  encode(*compress::make_compressor("topk:0.01"), {{64, 4'000'000}, 1, 1, Planned::nothing});
  EXPECT_GT(late, 0);
}

TEST(Scratch, OfSumsIsAllocatedLateWithoutAPlan) {
  const auto compressor = compress::make_compressor("topk:0.01");
  for (const Planned planned : {Planned::all, Planned::gradients}) {
    late = 0;
    encode(*compressor, {{64, 333, 4'000'000}, 2, 1, planned});
    EXPECT_EQ(late > 0, planned == Planned::gradients);
  }
}

}  // namespace
}  // namespace winnow::tests
