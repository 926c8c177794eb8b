// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/context.hpp"

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/bridge/checked.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/workspace_internal.hpp"
#include "kernels/load.hpp"

namespace winnow::comm {
namespace {

Claim claim(const Transport* transport) {
  WINNOW_EXPECTS(transport != nullptr, "an AllReducer needs a transport");
  return {*transport, "an AllReducer"};
}

}  // namespace

Context::Context(std::shared_ptr<Transport> transport, const Exec& where)
    : transport_(std::move(transport)), claim_(claim(transport_.get())) {
  host_.workspace = exec_.workspace = &scratch_.host;
  try {
    WINNOW_EXPECTS(where.workspace == nullptr && where.device_workspace == nullptr &&
                       where.pinned_workspace == nullptr && where.launches == nullptr,
                   "an AllReducer has workspaces of its own: pass an Exec without");
    WINNOW_EXPECTS(kernels::can_run(where.place),
                   "place " + std::to_string(static_cast<int>(where.place)) +
                       ": buckets lie in host memory (Place::host) or on a device (Place::cuda)");
    WINNOW_EXPECTS(where.place != Place::cuda || where.stream != nullptr,
                   "buckets in device memory are reduced in the order of a stream: pass "
                   "Place::cuda and an Exec::stream that is not null");
    WINNOW_EXPECTS(where.place == Place::cuda || where.stream == nullptr,
                   "Exec::stream is for buckets in device memory: with it pass Place::cuda");
    device_ = kernels::current_device(where.place);
    if (where.place == Place::cuda) {
      exec_.device_workspace = &scratch_.device.emplace(kernels::memory_of(where.place));
      exec_.launches = &scratch_.launches;
      exec_.pinned_workspace = &scratch_.pinned.emplace(kernels::pinned_memory());
      // Now, while nothing is under way: both may wait for the device.
      scratch_.pinned->reserve(1);
      kernels::load_kernels(where.place);
    }
    exec_.place = where.place;
    exec_.stream = where.stream;
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
  try {
    world_ = std::make_unique<MemoryAdapter>(*transport_, exec_.place, exec_.stream);
    control_ = std::make_unique<MemoryAdapter>(*transport_, host_.place, exec_.stream);
  } catch (const std::exception& error) {
    abort_by(*transport_, error);
    throw;
  }
}

Context::~Context() {
  if (scratch_.device) Workspace::Internal::set_registrar(*scratch_.device, {});
}

void Context::register_scratch() {
  if (!scratch_.device) return;
  Workspace::Internal::set_registrar(*scratch_.device, world().registrar());
}

void Context::check_all() {
  checked_ = checked(*transport_);
  world_ = std::make_unique<MemoryAdapter>(*checked_, exec_.place, exec_.stream);
  control_ = std::make_unique<MemoryAdapter>(*checked_, host_.place, exec_.stream);
}

void Context::abandon() noexcept {
  Workspace::Internal::abandon(scratch_.host);
  for (auto* workspace : {&scratch_.device, &scratch_.pinned}) {
    if (*workspace) Workspace::Internal::abandon(**workspace);
  }
}

}  // namespace winnow::comm
