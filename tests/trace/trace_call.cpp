// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// usage: trace_call PLACE COMPRESSOR SCHEDULE RANKS
//
// Prints the addresses of the functions that rank 0 enters in a steady call on the host or, with
// PLACE cuda, on the model of a device, one a line, and "-" where it leaves one: tools/trace_call
// says what they are. Where the schedule has two levels, two ranks share a node.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/options.hpp>
#include <winnow/transport.hpp>

#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/exec/place_memory.hpp"
#include "tests/harness/nodes_transport.hpp"
#include "tests/trace/hooks.hpp"

namespace winnow {
namespace {

constexpr std::size_t kElements = 100'000;
constexpr int kWarmUps = 3;

std::vector<float> gradient(int rank, int call) {
  std::vector<float> values(kElements);
  std::uint32_t state = static_cast<std::uint32_t>(1000 * call + rank + 1);
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
  }
  return values;
}

void print(const std::vector<void*>& events) {
  for (const void* event : events) {
    if (event == nullptr) {
      std::puts("-");
    } else {
      std::printf("%p\n", event);
    }
  }
}

/// Traces a steady call of rank 0; the other ranks make theirs.
std::vector<void*> trace(const std::shared_ptr<Transport>& transport, const Options& options,
                         bool on_device) {
  const kernels::cuda::Stream stream;
  const Exec where = on_device ? stream.exec() : Exec{};
  AllReducer reducer(transport, options, where);
  kernels::PlaceArray<float> values(where, kElements);
  std::vector<void*> events;
  for (int call = 0; call <= kWarmUps; ++call) {
    const std::vector<float> from = gradient(transport->rank(), call);
    if (on_device) {
      kernels::cuda::enqueue_copy(values.span(), std::span(from), stream);
      stream.synchronize();
    } else {
      std::ranges::copy(from, values.span().begin());
    }
    const bool traced = call == kWarmUps && transport->rank() == 0;
    if (traced) tests::start_trace();
    reducer.all_reduce(values.span(), 1);
    if (traced) events = tests::end_trace();
    stream.synchronize();
  }
  return events;
}

}  // namespace
}  // namespace winnow

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "usage: trace_call PLACE COMPRESSOR SCHEDULE RANKS\n");
    return 2;
  }
  const bool on_device = std::string_view(arguments[1]) == "cuda";
  winnow::Options options;
  options.compressor = arguments[2];
  options.schedule = arguments[3];
  options.min_bytes = 0;
  std::vector<void*> events;
  {
    std::vector<std::jthread> ranks;
    for (auto& local : winnow::local_transports(std::atoi(arguments[4]))) {
      const auto transport = std::make_shared<winnow::tests::NodesTransport>(
          std::move(local), winnow::tests::per_node(options.schedule));
      ranks.emplace_back([&, transport] {
        std::vector<void*> entered = winnow::trace(transport, options, on_device);
        if (transport->rank() == 0) events = std::move(entered);
      });
    }
  }
  winnow::print(events);
  return 0;
}
