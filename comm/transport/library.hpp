// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>

namespace winnow::comm {

/// A shared library that the process finds at run time, so that Winnow loads where there is none.
/// Never closed: OpenSSL's register functions that run when the process ends.
class Library {
 public:
  /// Loads the first of these that there is, or takes it from the process.
  Library(std::initializer_list<const char*> names);

  /// A function as the library has it, for a pointer to a function of its type.
  class Found {
   public:
    explicit Found(void* address) : address_(address) {}
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor)
      return reinterpret_cast<Function*>(address_);
    }

   private:
    void* address_;
  };
  /// The function of that name; null, and a problem(), if there is none.
  Found operator[](const char* name) { return Found(address_of(name)); }
  /// Why a function is missing, or the library is; empty if all are there.
  const std::string& problem() const { return problem_; }

 private:
  void* address_of(const char* name);

  const char* name_;
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace winnow::comm
