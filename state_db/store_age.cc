#include "state_db/store_age.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

constexpr int64_t kBetweenWrites_ms = 10 * 60'000;

}  // namespace

StoreAge::Saved StoreAge::read() {
  Saved saved;
  Statement query = store_.prepare("SELECT age_ms, boot_id, boot_ms FROM store_age");
  if (!query.step()) return saved;
  std::string boot_id;
  int64_t boot_ms = 0;
  query.read(saved.age_ms, boot_id, boot_ms);
  saved.this_boot = boot_id == store_.clock().boot_id();
  if (saved.this_boot) saved.since_ms = std::max<int64_t>(0, store_.clock().boot_ms() - boot_ms);
  return saved;
}

int64_t StoreAge::now_ms() {
  const Saved saved = read();
  return saved.age_ms + saved.since_ms;
}

void StoreAge::save() {
  store_.transaction([&] {
    const Saved saved = read();
    if (saved.this_boot && saved.since_ms < kBetweenWrites_ms) return;
    store_
        .prepare(
            "INSERT OR REPLACE INTO store_age (row, age_ms, boot_id, boot_ms) VALUES (1, ?, ?, ?)")
        .run(saved.age_ms + saved.since_ms, store_.clock().boot_id(), store_.clock().boot_ms());
  });
}

}  // namespace moorage::state_db
