#include "state_db/tables/approvals.h"

#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/store_age.h"

namespace moorage::state_db {
namespace {

using enum ApprovalState;

constexpr std::string_view kSelect =
    "SELECT id, workspace, repository, ref, old_id, new_id, commits, title, state, reason, "
    "asked_wall_ms, decided_uid, decided_wall_ms, used_wall_ms FROM approvals ";
constexpr size_t kShortId = 12;  // digits of an object's id in events

void read_row(Statement& query, ApprovalRow& row) {
  query.read(row.id, row.workspace, row.repository, row.ref, row.old_id, row.new_id, row.commits,
             row.title, row.state, row.reason, row.asked_wall_ms, row.decided_uid,
             row.decided_wall_ms, row.used_wall_ms);
}

std::string description(const ApprovalRow& row, base::ApprovalId id) {
  return id.str() + ": " + row.repository + " " + row.ref + " " + row.old_id.substr(0, kShortId) +
         " -> " + row.new_id.substr(0, kShortId);
}

}  // namespace

std::optional<ApprovalRow> ApprovalTable::find(base::ApprovalId id) {
  return store_.prepare(std::string(kSelect) + "WHERE id = ?").first<ApprovalRow>(read_row, id);
}

std::optional<ApprovalRow> ApprovalTable::find_same(const ApprovalRow& push) {
  return store_
      .prepare(std::string(kSelect) +
               "WHERE workspace = ? AND repository = ? AND ref = ? AND old_id = ? AND new_id = ? "
               "AND state IN ('waiting','approved','refused') ORDER BY id DESC LIMIT 1")
      .first<ApprovalRow>(read_row, push.workspace, push.repository, push.ref, push.old_id,
                          push.new_id);
}

void ApprovalTable::expire_old() {
  const int64_t now_ms = StoreAge(store_).now_ms();
  const auto move_older = [&](ApprovalState from, int64_t than_ms) {
    const auto ids = store_.prepare("SELECT id FROM approvals WHERE state = ? AND asked_age_ms < ?")
                         .column<base::ApprovalId>(from, now_ms - than_ms);
    for (const base::ApprovalId id : ids)
      store_.move(id, from, expired, id.str() + ": nobody used it in time");
  };
  move_older(waiting, kWaits_ms);
  move_older(approved, kLasts_ms);
}

ApprovalRow ApprovalTable::ask(const ApprovalRow& wanted) {
  return store_.transaction([&] {
    expire_old();
    if (auto same = find_same(wanted)) return *same;
    const auto replaced =
        store_
            .prepare(
                "SELECT id FROM approvals WHERE workspace = ? AND repository = ? AND ref = ? "
                "AND state = 'waiting'")
            .column<base::ApprovalId>(wanted.workspace, wanted.repository, wanted.ref);
    for (const base::ApprovalId id : replaced)
      store_.move(id, waiting, expired, id.str() + ": another push of the same ref replaced it");
    const auto count =
        store_.prepare("SELECT count(*) FROM approvals WHERE workspace = ? AND state = 'waiting'")
            .value<int64_t>(wanted.workspace);
    if (count.value_or(0) >= static_cast<int64_t>(kMostWaiting)) {
      throw Error(Code::resource_exhausted,
                  std::to_string(kMostWaiting) + " pushes wait for an approval already");
    }
    const base::ApprovalId id{
        insert(store_,
               "INSERT INTO approvals (workspace, repository, ref, old_id, new_id, commits, title, "
               "state, asked_wall_ms, asked_age_ms)",
               wanted.workspace, wanted.repository, wanted.ref, wanted.old_id, wanted.new_id,
               wanted.commits, event_text(wanted.title), LifeCycle<ApprovalState>::kFirst,
               store_.clock().wall_ms(), StoreAge(store_).now_ms())};
    store_.record_new<ApprovalState>(id, description(wanted, id));
    return *find(id);
  });
}

std::vector<ApprovalRow> ApprovalTable::open() {
  store_.transaction([&] { expire_old(); });
  return store_
      .prepare(std::string(kSelect) +
               "WHERE state IN ('waiting','approved') ORDER BY id DESC LIMIT ?")
      .all<ApprovalRow>(read_row, kMostListed);
}

std::vector<ApprovalRow> ApprovalTable::of(base::WorkspaceId workspace) {
  store_.transaction([&] { expire_old(); });
  return store_.prepare(std::string(kSelect) + "WHERE workspace = ? ORDER BY id DESC LIMIT ?")
      .all<ApprovalRow>(read_row, workspace, kMostListed);
}

ApprovalRow ApprovalTable::decide(const ApprovalRow& row, const Decision& decision) {
  return store_.transaction([&] {
    expire_old();
    store_.move(row.id, row.state, decision.to, description(row, row.id) + ": " + decision.reason);
    change(store_,
           "UPDATE approvals SET decided_uid = ?, decided_wall_ms = ?, asked_age_ms = ? "
           "WHERE id = ?",
           decision.uid, store_.clock().wall_ms(), StoreAge(store_).now_ms(), row.id);
    return *find(row.id);
  });
}

bool ApprovalTable::use(const std::vector<base::ApprovalId>& ids) {
  return store_.transaction([&] {
    expire_old();
    for (const base::ApprovalId id : ids) {
      if (find(id).value_or(ApprovalRow{}).state != approved) return false;
    }
    for (const base::ApprovalId id : ids) {
      store_.move(id, approved, used, description(*find(id), id) + ": pushed");
      change(store_, "UPDATE approvals SET used_wall_ms = ? WHERE id = ?", store_.clock().wall_ms(),
             id);
    }
    return true;
  });
}

}  // namespace moorage::state_db
