// The counters that ids are given from. A row takes its number with it for good, so a number is
// never given twice, unless the whole database forgets: an older state.db was put in its place.
// What the disk has then tells how far the counters had come.
#pragma once

#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

class IdCounters {
 public:
  explicit IdCounters(Store& store) : store_(store) {}
  // From now on only higher numbers are given. False: that was so already; nothing is written then.
  template <typename Tag>
  bool raise_above(base::Id<Tag> used) {
    return raise(Tag::kPrefix, used.value);
  }

 private:
  bool raise(std::string_view prefix, int64_t used);

  Store& store_;
};

}  // namespace moorage::state_db
