// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace winnow::comm {

/// A shared library that the process finds at run time, so that Winnow loads where there is none.
/// Never closed: OpenSSL's register functions that run when the process ends.
class Library {
 public:
  /// Loads the first of these that there is, or takes it from the process.
  Library(std::initializer_list<const char*> names) : name_(*names.begin()) {
    for (const char* const name : names) {
      handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        problem_.clear();
        return;
      }
      if (problem_.empty()) problem_ = ::dlerror();
    }
  }

  /// Finds the function of that name; null, and a problem(), if there is none.
  template <class Function>
  void find(const char* name, Function*& function) {
    if (handle_ == nullptr) return;
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (function == nullptr) problem_ = std::string(name_).append(" has no ").append(name);
  }
  /// Why a function is missing, or the library is; empty if all are there.
  const std::string& problem() const { return problem_; }

 private:
  const char* name_;
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace winnow::comm
