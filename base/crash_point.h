// Named places between two effects where a test stops the process as `kill -9` would: with
// MOORAGE_CRASH_AT=name[:N] in its environment the daemon dies at the N-th pass (default: first).
// Tests also stage races here: with MOORAGE_PAUSE_AT=name=PATH[,name=PATH...] a thread that passes
// while the file PATH exists creates PATH.reached and waits until PATH is gone, at most a minute.
// Costs one load and a branch when unset. `crash_point_names` lists all points compiled in, so that
// a test can go through them all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

class CrashPoint {
 public:
  explicit CrashPoint(std::string_view name);  // static storage only: registers itself
  void pass();

 private:
  std::string_view name_;
  bool armed_ = false;
  const std::string* pause_ = nullptr;  // the path, when a pause is requested
};

std::vector<std::string_view> crash_point_names();

}  // namespace moorage::base

// At namespace scope of a .cc file: MOORAGE_CRASH_POINT(after_intent, "create.after_intent");
// then after_intent.pass() in the verb.
#define MOORAGE_CRASH_POINT(variable, name) \
  static ::moorage::base::CrashPoint variable { name }
