// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/health.hpp"

#include <utility>

namespace winnow::comm {

void Health::expect() const {
  if (broken_) last_resort_.comm_error(*broken_);
}

void Health::fail(Failure why) {
  setup_.transport().abort(why.text, why.kind);
  broken_ = std::move(why);
  setup_.context.abandon();
  log_.broken(*broken_);
  if (broken_->kind == FailureKind::usage) last_resort_.usage_error(broken_->text);
  last_resort_.comm_error(*broken_);
}

}  // namespace winnow::comm
