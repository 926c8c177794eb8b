// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/openssl.hpp"

namespace winnow::comm {

const LibCrypto& libcrypto() {
  static const LibCrypto found;
  return found;
}

const LibSsl& libssl() {
  static const LibSsl found;
  return found;
}

}  // namespace winnow::comm
