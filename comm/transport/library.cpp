// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/library.hpp"

#include <dlfcn.h>

namespace winnow::comm {

Library::Library(std::initializer_list<const char*> names) : name_(*names.begin()) {
  for (const char* const name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      problem_.clear();
      return;
    }
    if (problem_.empty()) problem_ = ::dlerror();
  }
}

void* Library::address_of(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) problem_ = std::string(name_).append(" has no ").append(name);
  return found;
}

}  // namespace winnow::comm
