#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: abi_test.sh PROGRAM FILE
#
# PROGRAM prints the binary interface, and it is that of FILE.
"$1" | diff -u "$2" - || { echo 'the binary interface has changed'; exit 1; }
