// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// What many sources of the library include, compiled once where b_pch asks for it. Each of them
// still includes what it uses: builds without it would fail. (No #pragma once: g++ warns of it
// here.)
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>
