// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

#include "bench/gpu/cuda_inputs.hpp"
#include "bench/rank_device.hpp"
#include "comm/transport/one_of_many.hpp"

namespace winnow::bench {

namespace {

/// One rank's AllReducer, which makes calls, and a graph of one call.
struct Call {
  Call(const CudaInputs& in, const std::string& compressor, std::size_t count,
       std::size_t parameters)
      : gradient(count),
        exec(in.stream.exec()),
        reducer(std::make_shared<comm::OneOfManyTransport>(),
                {.compressor = compressor, .schedule = "gather", .min_bytes = 0}, exec) {
    for (std::size_t p = 0; p < parameters; ++p) {
      const std::size_t begin = count * p / parameters, end = count * (p + 1) / parameters;
      segments.push_back({.elements = gradient.span().subspan(begin, end - begin), .id = p});
    }
    for (std::size_t first = 0; first < 2; ++first) {  // these plan and allocate
      bring(in, first);
      reduce();
    }
    reducer.synchronize();
    graph.emplace_back(exec, [this] { reduce(); });
  }

  /// Another gradient in each round: of one that repeats, elements that just miss the bound all
  /// reach it some rounds later.
  void bring(const CudaInputs& in, std::size_t round) const {
    const std::span<float> to = gradient.span();
    const std::span<const float> from = in.set(round).gradient.span().first(to.size());
    const std::size_t turn = round * 1'000'003 % to.size();
    kernels::cuda::enqueue_copy(to.first(to.size() - turn), from.subspan(turn), in.stream);
    kernels::cuda::enqueue_copy(to.last(turn), from.first(turn), in.stream);
  }
  void reduce() { reducer.all_reduce(segments); }

  DeviceArray<float> gradient;
  Exec exec;
  AllReducer reducer;
  std::vector<Segment> segments;
  std::vector<RankGraph> graph;
};

}  // namespace

void add_call_rows(const CudaInputs& in, std::vector<CudaRow>& rows) {
  // A call reads and writes the gradient and the residual. It writes the selected elements to a
  // list and to the message, and reads them there: 8 bytes each time.
  const double density = static_cast<double>(in.k) / static_cast<double>(in.count);
  const double each = 4 * sizeof(float) + 2 * 8 * density;
  std::ostringstream compressor;
  compressor << "topk:" << density;
  const auto add = [&](std::size_t count, std::size_t parameters, const std::string& what) {
    const auto call = std::make_shared<Call>(in, compressor.str(), count, parameters);
    const auto bring = [&in, call](std::size_t round) { call->bring(in, round); };
    const double bytes = each * static_cast<double>(count);
    rows.push_back({"all_reduce of " + what, bytes, [call](auto) { call->reduce(); }, bring});
    rows.push_back({"all_reduce of " + what + ", from a graph", bytes,
                    [call](auto) { call->graph[0].launch(); }, bring});
  };
  add(in.count, 1, "topk, one rank");
  // A bucket of DistributedDataParallel, if the table's inputs are as large.
  constexpr std::size_t kBucket = (25 << 20) / sizeof(float);
  add(std::min(kBucket, in.count), 60, "60 parameters, 25 MiB");
}

}  // namespace winnow::bench
