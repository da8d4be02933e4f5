// Formats ids for json_each, "[3,17]", so that one statement can query many rows.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace moorage::state_db {

template <base::IdPrefix Prefix>
std::string id_list(const std::vector<base::Id<Prefix>>& ids) {
  std::string list;
  for (const auto id : ids) list += (list.empty() ? "" : ",") + std::to_string(id.value);
  return "[" + list + "]";
}

}  // namespace moorage::state_db
