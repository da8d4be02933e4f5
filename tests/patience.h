// How much longer than on the machines that the tests were written on something may take:
// MOORAGE_TEST_PATIENCE, a factor; without it 1, and 5 with a sanitizer. For deadlines of a test's
// own; what a test asserts of the product's deadlines (not before, and not much later) keeps its
// lower bound.
#pragma once

#include <chrono>
#include <cstdlib>

#include "sanitized.h"

namespace moorage::tests {

inline int patience() {
  const char* text = std::getenv("MOORAGE_TEST_PATIENCE");
  const int factor = text ? std::atoi(text) : test::kSanitized ? 5 : 1;
  return factor > 1 ? factor : 1;
}

inline std::chrono::milliseconds patient(std::chrono::milliseconds deadline) {
  return deadline * patience();
}

}  // namespace moorage::tests
