/* Copyright The Winnow Authors
   SPDX-License-Identifier: Apache-2.0 */
/* What the program of make_calls.py is written with. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <winnow/winnow.h>

enum { kCount = 8, kRoom = 4096, kMostKept = 4096 };

static const char* function = "";
static int checks = 0, failures = 0, functions = 0;
static int succeeds = 0;  /* the function, where all is right */
static void* made = NULL; /* by the last call */
static void* pointers[kCount];

/* Right memory for a parameter or member of that name: apart from all other. */
static void* memory_of(const char* name) {
  static union {
    double aligned;
    char bytes[kRoom];
  } blocks[64];
  static const char* names[64];
  for (int i = 0; i < 64; ++i) {
    if (names[i] == NULL) names[i] = name;
    if (strcmp(names[i], name) == 0) return blocks[i].bytes;
  }
  printf("no memory for %s\n", name);
  exit(1);
}

static const char* long_text(void) {
  static char text[1 << 20];
  memset(text, 'x', sizeof text - 1);
  return text;
}

/* What is destroyed at the end, the latest first. */
static struct kept {
  void (*destroy)(void*);
  void* handle;
} kept[kMostKept];
static int kept_count = 0;

static void at_end(void (*destroy)(void*), void* handle) {
  if (kept_count == kMostKept) exit(1);
  kept[kept_count].destroy = destroy;
  kept[kept_count++].handle = handle;
}

static void must(int status, const char* maker) {
  if (status == WINNOW_SUCCESS) return;
  printf("%s made nothing: %s\n", maker, winnow_last_error());
  exit(1);
}

static void begin(const char* name) {
  static char text[] = "text";
  for (int i = 0; i < kCount; ++i) pointers[i] = text;
  function = name;
  ++functions;
  succeeds = 0;
}

/* Whether the text is UTF-8, but for the choice among forms of one character. */
static int is_utf8(const char* text) {
  while (*text != '\0') {
    const unsigned char first = (unsigned char)*text++;
    int more = first < 0x80 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4) return 0;
    for (; more > 0; --more) {
      if (((unsigned char)*text & 0xc0) != 0x80) return 0;
      ++text;
    }
  }
  return 1;
}

/* After a call with `name` wrong, "" where all is right. An error says what is wrong by its name,
   if the call would have succeeded without it. */
static void check(int status, int fails, const char* name, const char* wrong) {
  const char* const error = winnow_last_error();
  if (name[0] == '\0') succeeds = status == WINNOW_SUCCESS;
  const int failed = status != WINNOW_SUCCESS;
  const int named = !fails || !succeeds || strstr(error, name) != NULL;
  ++checks;
  if ((!fails || failed) && named && is_utf8(error)) return;
  ++failures;
  printf("%s with %s: status %d, \"%s\"\n", function, wrong, status, error);
}

static int end(int expected) {
  while (kept_count > 0) {
    --kept_count;
    kept[kept_count].destroy(kept[kept_count].handle);
  }
  printf("%d functions, %d checks, %d failures\n", functions, checks, failures);
  return failures > 0 || functions != expected;
}
