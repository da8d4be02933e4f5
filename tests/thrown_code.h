// The code of the Error that work() throws; fails the test if it throws none.
#pragma once

#include <catch2/catch.hpp>
#include <functional>

#include "base/error.h"

namespace moorage {

inline base::Code code_thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::Error& error) {
    return error.code();
  }
  FAIL("no error was thrown");
  return base::Code::internal;
}

}  // namespace moorage
