// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

namespace winnow::kernels {

/// The process in which an object was made. A child of a fork holds a copy of the object without
/// the threads, connections and devices behind it: it must neither use nor end them.
class OwnProcess {
 public:
  bool left() const { return ::getpid() != process_; }

 private:
  pid_t process_ = ::getpid();
};

}  // namespace winnow::kernels
