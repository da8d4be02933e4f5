// Single facts about the store itself (table meta), by name; and the counters behind the ids. An id
// is never reused, unless an older state.db replaced the current one: then the ids on disk show how
// far the counters had advanced.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

std::optional<std::string> find_fact(Store& store, const std::string& name);
void set_fact(Store& store, const std::string& name, const std::string& value);

// Gives only higher numbers from now on. False: nothing to change.
bool raise_counter(Store& store, std::string_view prefix, int64_t used);
template <base::IdPrefix Prefix>
bool raise_counter(Store& store, base::Id<Prefix> used) {
  return raise_counter(store, Prefix.text, used.value);
}

}  // namespace moorage::state_db
