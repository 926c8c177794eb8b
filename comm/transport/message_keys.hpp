// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/transport/credentials.hpp"

namespace winnow::comm {

/// An optional extra of a transport whose ranks know each other by a secret.
class MessageKeys {
 public:
  virtual ~MessageKeys() = default;
  /// The key that proves messages between this rank and `peer`, which nobody else has; open if
  /// there is no secret. Equal at both ends, and another one in each transport.
  virtual Credentials message_key(int peer) const = 0;

 protected:
  MessageKeys() = default;
  MessageKeys(const MessageKeys&) = default;
  MessageKeys& operator=(const MessageKeys&) = default;
};

}  // namespace winnow::comm
