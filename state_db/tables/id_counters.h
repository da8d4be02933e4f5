// The counters behind the ids. An id is never reused, unless an older state.db replaced the current
// one: then the ids on disk show how far the counters had advanced.
#pragma once

#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

class IdCounters {
 public:
  explicit IdCounters(Store& store) : store_(store) {}
  // Gives only higher numbers from now on. False: nothing to change.
  template <base::IdPrefix Prefix>
  bool raise_above(base::Id<Prefix> used) {
    return raise(Prefix.text, used.value);
  }

 private:
  bool raise(std::string_view prefix, int64_t used);

  Store& store_;
};

}  // namespace moorage::state_db
