#include "state_db/tables/facts.h"

#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {

std::optional<std::string> find_fact(Store& store, const std::string& name) {
  Statement query = store.prepare("SELECT value FROM meta WHERE name = ?");
  return query.value<std::string>(name);
}

void set_fact(Store& store, const std::string& name, const std::string& value) {
  store.transaction(
      [&] { insert(store, "INSERT OR REPLACE INTO meta (name, value)", name, value); });
}

}  // namespace moorage::state_db
