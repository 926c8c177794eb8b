// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/transport.hpp"

#include <string>
#include <utility>
#include <vector>
#include <winnow/mixed.hpp>
#include <winnow/nccl.hpp>

#include "comm/c_interface/function_transport.hpp"
#include "comm/c_interface/given.hpp"
#include "comm/c_interface/status.hpp"
#include "comm/c_interface/text.hpp"

using winnow::comm::expect_given;
using winnow::comm::guarded;

namespace {

winnow::Transport& transport_of(const winnow_transport* transport) {
  return *expect_given(transport, "transport").transport;
}

}  // namespace

extern "C" {

void winnow_transport_destroy(winnow_transport* transport) {
  delete transport;
}

int winnow_transport_rank(const winnow_transport* transport) {
  return winnow::comm::answer_or(-1, [&] { return transport_of(transport).rank(); });
}

int winnow_transport_size(const winnow_transport* transport) {
  return winnow::comm::answer_or(-1, [&] { return transport_of(transport).size(); });
}

int winnow_transport_node(const winnow_transport* transport) {
  return winnow::comm::answer_or(-1, [&] { return transport_of(transport).node(); });
}

void winnow_transport_abort(winnow_transport* transport, const char* reason) {
  const std::string_view text = winnow::comm::text_or_none(reason);
  (void)guarded([&] { transport_of(transport).abort(text.data() == nullptr ? "aborted" : text); });
}

int winnow_transport_duplicate(winnow_transport* transport, double seconds,
                               winnow_transport** duplicate) {
  return guarded([&] {
    winnow::Transport& given = transport_of(transport);
    auto& made = expect_given(duplicate, "duplicate");  // before the ranks communicate
    made = new winnow_transport{given.duplicate(winnow::comm::deadline_of(seconds))};
  });
}

int winnow_local_transports(int size, winnow_transport** transports) {
  return guarded([&] {
    auto made = winnow::local_transports(size);
    winnow::comm::expect_array(transports, made.size(), "transports");
    std::vector<std::unique_ptr<winnow_transport>> handles;
    for (auto& transport : made) {
      handles.push_back(std::make_unique<winnow_transport>(std::move(transport)));
    }
    for (auto& handle : handles) *transports++ = handle.release();
  });
}

int winnow_nccl_transport(winnow_transport* other, double seconds, winnow_transport** transport) {
  return guarded([&] {
    winnow::Transport& meeting = *expect_given(other, "other").transport;
    auto& made = expect_given(transport, "transport");
    made =
        new winnow_transport{winnow::nccl_transport(meeting, winnow::comm::deadline_of(seconds))};
  });
}

int winnow_nccl_transport_with(winnow_transport* other, const winnow_nccl_options* options,
                               double seconds, winnow_transport** transport) {
  return guarded([&] {
    winnow::Transport& meeting = *expect_given(other, "other").transport;
    const winnow_nccl_options known = winnow::comm::read(options, "options");
    const bool registers = winnow::comm::flag_of(known.register_memory, "register_memory");
    auto& made = expect_given(transport, "transport");
    made = new winnow_transport{winnow::nccl_transport(meeting, winnow::comm::deadline_of(seconds),
                                                       {.min_ctas = known.min_ctas,
                                                        .max_ctas = known.max_ctas,
                                                        .cga_cluster_size = known.cga_cluster_size,
                                                        .register_memory = registers})};
  });
}

int winnow_nccl_available(void) {
  return winnow::nccl_available() ? 1 : 0;
}

int winnow_mixed_transport(winnow_transport* world, winnow_transport* node, double seconds,
                           winnow_transport** transport) {
  return guarded([&] {
    winnow_transport& between = expect_given(world, "world");
    winnow_transport& within = expect_given(node, "node");
    auto& made = expect_given(transport, "transport");
    made = new winnow_transport{winnow::mixed_transport(between.transport, within.transport,
                                                        winnow::comm::deadline_of(seconds))};
  });
}

int winnow_transport_from_functions(const winnow_transport_functions* functions,
                                    winnow_transport** transport) {
  return guarded([&] {
    auto& made = expect_given(transport, "transport");  // before anything would have to be undone
    made = new winnow_transport{
        winnow::comm::function_transport(winnow::comm::read(functions, "functions"))};
  });
}

}  // extern "C"
