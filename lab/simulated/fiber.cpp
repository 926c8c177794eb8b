// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef _FORTIFY_SOURCE  // its longjmp() mistakes another stack for a destroyed frame
#include "lab/simulated/fiber.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/tsan_interface.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cfenv>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <winnow/error.hpp>

// Defined in programs built with the sanitizer, null in others.
#pragma weak __sanitizer_start_switch_fiber
#pragma weak __sanitizer_finish_switch_fiber
#pragma weak __tsan_get_current_fiber
#pragma weak __tsan_create_fiber
#pragma weak __tsan_destroy_fiber
#pragma weak __tsan_switch_to_fiber

namespace winnow::comm {

namespace {

// Address space; only touched pages become memory. Sanitizers make frames several times larger.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

/// Memory for a stack, with a guard page below it.
class Stack {
 public:
  Stack() {
    void* memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) fail(errno);
    memory_ = static_cast<std::byte*>(memory);
    if (::mprotect(memory_, guard(), PROT_NONE) != 0) {
      const int error = errno;
      ::munmap(memory_, kStackBytes);
      fail(error);
    }
  }
  ~Stack() { ::munmap(memory_, kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  std::byte* bottom() const { return memory_ + guard(); }
  static std::size_t size() { return kStackBytes - guard(); }

 private:
  static std::size_t guard() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  [[noreturn]] static void fail(int error) {
    throw CommError(
        "no memory for the stack of one more simulated rank: " + std::string(std::strerror(error)),
        error);
  }

  std::byte* memory_;
};

/// The exceptions being handled, which C++ keeps per thread: the first members of __cxa_eh_globals
/// (Itanium C++ ABI: Exception Handling, 2.2.2).
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;

  void save() { std::memcpy(this, abi::__cxa_get_globals(), sizeof(*this)); }
  void restore() const { std::memcpy(abi::__cxa_get_globals(), this, sizeof(*this)); }
};

/// The floating-point mode, which calls preserve.
struct FloatMode {
#if defined(__x86_64__)
  std::uint32_t sse;
  std::uint16_t x87;
  void save() { asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(sse), "=m"(x87)); }
  void restore() const { asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(sse), "m"(x87)); }
#else
  std::fenv_t all;
  void save() { std::fegetenv(&all); }
  void restore() const { std::fesetenv(&all); }
#endif
};

using Jump = void (*)(std::decay_t<std::jmp_buf>, int);

/// _longjmp() to a stack that will come back to this one. AddressSanitizer's own takes the frames
/// of this stack for gone and forgets all that it knows of them, which takes longer than a kernel's
/// thread between two barriers; so it gets libc's. Called by a pointer, lest the compiler tell
/// AddressSanitizer the same.
Jump jump() {
  static const Jump found = [] {
    const bool is_asan = __sanitizer_start_switch_fiber != nullptr;
    void* const of_libc =
        is_asan && __tsan_switch_to_fiber == nullptr ? ::dlsym(RTLD_NEXT, "_longjmp") : nullptr;
    return of_libc == nullptr ? Jump(&_longjmp) : reinterpret_cast<Jump>(of_libc);
  }();
  return found;
}

/// One end of a switch: where it stands while the other runs, and what the sanitizers call it.
struct Side {
  std::jmp_buf place{};
  FloatMode float_mode{};
  Exceptions exceptions;
  const void* bottom = nullptr;  // of its stack; AddressSanitizer reports it at the first switch
  std::size_t size = 0;
  void* fake_stack = nullptr;
  void* tsan = nullptr;
};

}  // namespace

struct Fiber::Impl {
  explicit Impl(std::function<void()> b) : body(std::move(b)) {
    fiber.bottom = stack.bottom();
    fiber.size = Stack::size();
    ::getcontext(&start);
    start.uc_stack.ss_sp = stack.bottom();
    start.uc_stack.ss_size = Stack::size();
    start.uc_link = nullptr;
    // makecontext passes only ints, so the pointer travels in two.
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&start, reinterpret_cast<void (*)()>(&Impl::enter), 2,
                  static_cast<unsigned>(std::uint64_t{self} >> 32), static_cast<unsigned>(self));
    if (__tsan_create_fiber != nullptr) fiber.tsan = __tsan_create_fiber(0);
  }
  ~Impl() {
    if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(fiber.tsan);
  }

  static void enter(unsigned high, unsigned low) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it was split to travel
    auto* self = reinterpret_cast<Impl*>(std::uintptr_t{high} << 32 | low);
    if (__sanitizer_finish_switch_fiber != nullptr)
      __sanitizer_finish_switch_fiber(nullptr, &self->owner.bottom, &self->owner.size);
    self->body();
    self->ended = true;
    self->change(self->fiber, self->owner, nullptr);
  }

  /// Leaves one side for the other; returns when `from` is entered again. `fake_stack` is where
  /// AddressSanitizer keeps the state of the side that leaves; null if it will not return. Only the
  /// first entry takes a context: swapcontext() calls the kernel for the signal mask, which costs
  /// ten times as much as all the rest. Not for threads with a shadow stack (Intel CET): longjmp()
  /// unwinds it, and finds no place there for another stack.
  void change(Side& from, Side& to, void** fake_stack) {
    from.exceptions.save();
    to.exceptions.restore();
    from.float_mode.save();
    if (_setjmp(from.place) == 0) {
      if (__sanitizer_start_switch_fiber != nullptr)
        __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.size);
      if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to.tsan, 0);
      if (!std::exchange(started, true)) ::setcontext(&start);
      if (fake_stack != nullptr) jump()(to.place, 1);
      _longjmp(to.place, 1);
    }
    from.float_mode.restore();
    if (__sanitizer_finish_switch_fiber != nullptr)
      __sanitizer_finish_switch_fiber(from.fake_stack, &to.bottom, &to.size);
  }

  Stack stack;
  std::function<void()> body;
  Side owner, fiber;
  ucontext_t start;
  bool started = false, ended = false;
};

Fiber::Fiber(std::function<void()> body) : impl_(std::make_unique<Impl>(std::move(body))) {}
Fiber::~Fiber() = default;

void Fiber::resume() {
  if (__tsan_get_current_fiber != nullptr) impl_->owner.tsan = __tsan_get_current_fiber();
  impl_->change(impl_->owner, impl_->fiber, &impl_->owner.fake_stack);
}

void Fiber::suspend() {
  impl_->change(impl_->fiber, impl_->owner, &impl_->fiber.fake_stack);
}

bool Fiber::ended() const {
  return impl_->ended;
}

}  // namespace winnow::comm
