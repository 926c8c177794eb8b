// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

#include "bench/gpu/cuda_inputs.hpp"
#include "bench/rank_device.hpp"

namespace winnow::bench {

namespace {

/// One rank's AllReducer, which makes calls, and a graph of one call.
struct Call {
  Call(const CudaInputs& in, const std::string& compressor)
      : gradient(in.count),
        exec(in.stream.exec()),
        reducer(std::move(local_transports(1).front()),
                {.compressor = compressor, .schedule = "gather", .min_bytes = 0}, exec) {
    bring(in, 0);
    for (int first = 0; first < 2; ++first) reduce();  // the first calls plan and allocate
    reducer.synchronize();
    graph.emplace_back(exec, [this] { reduce(); });
  }

  void bring(const CudaInputs& in, std::size_t round) const {
    kernels::cuda::enqueue_copy(gradient.span(), in.set(round).gradient.span().first(in.count),
                                in.stream);
  }
  void reduce() { reducer.all_reduce(gradient.span(), 0); }

  DeviceArray<float> gradient;
  Exec exec;
  AllReducer reducer;
  std::vector<RankGraph> graph;
};

}  // namespace

void add_call_rows(const CudaInputs& in, std::vector<CudaRow>& rows) {
  // A call reads and writes the gradient and the residual. It writes the selected elements to a
  // list and to the message, and reads them there: 8 bytes each time.
  const double each = 4 * sizeof(float), selected = 8;
  std::ostringstream compressor;
  compressor << "topk:" << static_cast<double>(in.k) / static_cast<double>(in.count);
  const auto call = std::make_shared<Call>(in, compressor.str());
  const double bytes =
      each * static_cast<double>(in.count) + 2 * selected * static_cast<double>(in.k);
  const auto bring = [&in, call](std::size_t round) { call->bring(in, round); };
  rows.push_back({"all_reduce of topk, one rank", bytes, [call](auto) { call->reduce(); }, bring});
  rows.push_back({"all_reduce of topk, from a graph", bytes,
                  [call](auto) { call->graph[0].launch(); }, bring});
}

}  // namespace winnow::bench
