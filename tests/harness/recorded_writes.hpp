// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <vector>

namespace winnow::tests {

/// Records each write to a stream separately, as it reaches the stream's buffer. For any thread.
class RecordedWrites final : public std::streambuf {
 public:
  /// All writes so far.
  std::vector<std::string> writes() const {
    const std::lock_guard lock(mutex_);
    return writes_;
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::lock_guard lock(mutex_);
    writes_.emplace_back(text, static_cast<std::size_t>(size));
    return size;
  }
  int_type overflow(int_type character) override {
    const char text = traits_type::to_char_type(character);
    xsputn(&text, 1);
    return character;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> writes_;
};

/// Records what this process writes to std::cerr while it lives.
class RecordedErrors {
 public:
  RecordedErrors() : before_(std::cerr.rdbuf(&recorded_)) {}
  ~RecordedErrors() { std::cerr.rdbuf(before_); }
  RecordedErrors(const RecordedErrors&) = delete;
  RecordedErrors& operator=(const RecordedErrors&) = delete;

  std::vector<std::string> writes() const { return recorded_.writes(); }

 private:
  RecordedWrites recorded_;
  std::streambuf* before_;
};

}  // namespace winnow::tests
