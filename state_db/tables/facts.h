// Single facts about the store itself (table meta), by name.
#pragma once

#include <optional>
#include <string>

namespace moorage::state_db {

class Store;

std::optional<std::string> find_fact(Store& store, const std::string& name);
void set_fact(Store& store, const std::string& name, const std::string& value);

}  // namespace moorage::state_db
