// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// usage: trace_call COMPRESSOR SCHEDULE RANKS
//
// Prints the addresses of the functions that rank 0 enters in a steady call, one a line, and "-"
// where it leaves one: tools/trace_call says what they are.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/options.hpp>
#include <winnow/transport.hpp>

#include "lab/trace/hooks.hpp"

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

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: trace_call COMPRESSOR SCHEDULE RANKS\n");
    return 2;
  }
  winnow::Options options;
  options.compressor = arguments[1];
  options.schedule = arguments[2];
  options.min_bytes = 0;
  std::vector<std::shared_ptr<winnow::Transport>> transports;
  for (auto& transport : winnow::local_transports(std::atoi(arguments[3]))) {
    transports.push_back(std::move(transport));
  }
  std::vector<void*> events;
  {
    std::vector<std::jthread> ranks;
    for (const auto& transport : transports) {
      ranks.emplace_back([&, transport] {
        winnow::AllReducer reducer(transport, options);
        for (int call = 0; call <= kWarmUps; ++call) {
          std::vector<float> values = gradient(transport->rank(), call);
          const bool traced = call == kWarmUps && transport->rank() == 0;
          if (traced) winnow::lab::start_trace();
          reducer.all_reduce(values, 1);
          if (traced) events = winnow::lab::end_trace();
        }
      });
    }
  }
  for (const void* event : events) {
    if (event == nullptr) {
      std::puts("-");
    } else {
      std::printf("%p\n", event);
    }
  }
  return 0;
}
