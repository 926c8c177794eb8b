// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of Winnow's C++ headers include this one. The file that does not exist ends the compilation,
// so that no other error hides the first one. winnow.h needs C99 only.
#if __cplusplus < 202002L
#error "Winnow's C++ headers need C++20: compile with -std=c++20"
#include <compile_with_-std=c++20>
#endif
