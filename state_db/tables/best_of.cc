#include "state_db/tables/best_of.h"

#include <array>
#include <sstream>

#include "base/clock.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"

namespace moorage::state_db {

namespace {

constexpr std::array<std::string_view, 3> kPromotes{"", "first-passing", "smallest-diff"};
constexpr std::array<std::string_view, 3> kPromotions{"", "done", "refused"};

constexpr std::string_view kSelect =
    "SELECT id, workspace, owner_uid, owner_gids, lease, lease_secret_hash, each_command, "
    "test_command, patch_bytes, timeout_ms, promote, parallel, keep, state, reason, "
    "cancel_requested, chosen, promotion, promotion_note, created_wall_ms, ended_wall_ms, "
    "request_hash FROM best_of ";
constexpr std::string_view kSelectAttempt =
    "SELECT id, best_of, number, workspace, label, patch_offset, patch_bytes, state, reason, "
    "each_exec, test_exec, measured, diff_files, diff_added, diff_removed, diff_bytes, tail, "
    "started_wall_ms, ended_wall_ms FROM best_of_attempts ";

std::string join(const std::vector<uint32_t>& gids) {
  std::string text;
  for (const uint32_t gid : gids) text += (text.empty() ? "" : " ") + std::to_string(gid);
  return text;
}

std::vector<uint32_t> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<uint32_t> gids;
  for (uint32_t gid = 0; words >> gid;) gids.push_back(gid);
  return gids;
}

uint64_t text_bytes(const NewBestOf& wanted) {
  uint64_t bytes = 0;
  for (const auto* words : {&wanted.each, &wanted.test}) {
    for (const auto& word : *words) bytes += word.size();
  }
  return bytes;
}

void read_row(Statement& query, BestOfRow& row) {
  NewBestOf& wanted = row.wanted;
  std::string gids;
  std::string promote;
  std::string promotion;
  query.read(row.id, wanted.workspace, wanted.owner_uid, gids, wanted.lease,
             wanted.lease_secret_hash, wanted.each, wanted.test, row.patch_bytes, wanted.timeout_ms,
             promote, wanted.parallel, wanted.keep, row.state, row.reason, row.cancel_requested,
             row.chosen, promotion, row.promotion_note, row.created_wall_ms, row.ended_wall_ms,
             wanted.request_hash);
  wanted.owner_gids = split(gids);
  wanted.promote = promote_from_name(promote).value_or(Promote::none);
  row.promotion = from_word<Promotion>(kPromotions, promotion).value_or(Promotion::none);
}

std::optional<BestOfRow> find_one(Store& store, std::string_view where, const auto&... values) {
  return store.prepare(std::string(kSelect) + std::string(where))
      .first<BestOfRow>(read_row, values...);
}

void read_attempt(Statement& query, AttemptRow& row) {
  bool measured = false;
  AttemptDiff diff;
  query.read(row.id, row.best_of, row.number, row.workspace, row.patch.label,
             row.patch.patch_offset, row.patch.patch_bytes, row.state, row.reason, row.each_exec,
             row.test_exec, measured, diff.files, diff.added, diff.removed, diff.bytes, row.tail,
             row.started_wall_ms, row.ended_wall_ms);
  if (measured) row.diff = diff;
}

}  // namespace

std::string_view promote_name(Promote promote) { return to_word(kPromotes, promote); }
std::optional<Promote> promote_from_name(std::string_view name) {
  return from_word<Promote>(kPromotes, name);
}
std::string_view promotion_name(Promotion promotion) { return to_word(kPromotions, promotion); }

BestOfRow BestOfTable::begin(const NewBestOf& wanted) {
  return store_.transaction([&] {
    uint64_t patch_bytes = 0;
    for (const auto& attempt : wanted.attempts) patch_bytes += attempt.patch_bytes;
    const base::BestOfId id{insert(
        store_,
        "INSERT INTO best_of (workspace, owner_uid, owner_gids, lease, lease_secret_hash, "
        "each_command, test_command, patch_bytes, timeout_ms, promote, parallel, keep, state, "
        "created_wall_ms, idempotency_key, request_hash)",
        wanted.workspace, wanted.owner_uid, join(wanted.owner_gids), wanted.lease,
        wanted.lease_secret_hash, wanted.each, wanted.test, patch_bytes, wanted.timeout_ms,
        promote_name(wanted.promote), wanted.parallel, wanted.keep, LifeCycle<BestOfState>::kFirst,
        store_.clock().wall_ms(), wanted.idempotency_key, wanted.request_hash)};
    store_.record_new<BestOfState>(id, id.str());
    uint32_t number = 0;
    for (const auto& attempt : wanted.attempts) {
      insert(
          store_,
          "INSERT INTO best_of_attempts (best_of, number, label, patch_offset, patch_bytes, state)",
          id, ++number, attempt.label, attempt.patch_offset, attempt.patch_bytes,
          LifeCycle<AttemptState>::kFirst);
    }
    return get(id);
  });
}

std::optional<BestOfRow> BestOfTable::find_made(const NewBestOf& wanted) {
  if (!wanted.idempotency_key) return std::nullopt;
  auto made = find_one(store_, "WHERE owner_uid = ? AND idempotency_key = ?", wanted.owner_uid,
                       wanted.idempotency_key);
  if (made)
    require_same_request(made->wanted.request_hash == wanted.request_hash, *wanted.idempotency_key);
  return made;
}

void BestOfTable::begin_running(base::BestOfId id, const std::vector<base::WorkspaceId>& forks) {
  store_.transaction([&] {
    store_.move(id, BestOfState::preparing, BestOfState::running);
    for (size_t n = 0; n < forks.size(); ++n) {
      change(store_, "UPDATE best_of_attempts SET workspace = ? WHERE best_of = ? AND number = ?",
             forks[n], id, n + 1);
    }
  });
}

void BestOfTable::fail_preparing(base::BestOfId id, const std::string& reason) {
  store_.transaction([&] {
    store_.move(id, BestOfState::preparing, BestOfState::failed, reason);
    change(store_, "UPDATE best_of SET ended_wall_ms = ?, idempotency_key = NULL WHERE id = ?",
           store_.clock().wall_ms(), id);
    for (const auto& row : attempts(id))
      store_.move(row.id, row.state, AttemptState::cancelled, "it never started");
  });
}

void BestOfTable::finish(base::BestOfId id, BestOfState to, const std::string& reason) {
  store_.transaction([&] {
    store_.move(id, BestOfState::running, to, reason);
    change(store_, "UPDATE best_of SET ended_wall_ms = ? WHERE id = ?", store_.clock().wall_ms(),
           id);
  });
}

bool BestOfTable::request_cancel(base::BestOfId id) {
  return write(store_,
               "UPDATE best_of SET cancel_requested = 1 WHERE id = ? "
               "AND state IN ('preparing','running')",
               id) == 1;
}

void BestOfTable::choose(base::BestOfId id, uint32_t number) {
  write(store_, "UPDATE best_of SET chosen = ? WHERE id = ?", number, id);
}

void BestOfTable::set_promotion(base::BestOfId id, Promotion promotion, const std::string& note) {
  write(store_, "UPDATE best_of SET promotion = ?, promotion_note = ? WHERE id = ?",
        promotion_name(promotion), event_text(note), id);
}

BestOfRow BestOfTable::get(base::BestOfId id) { return require_row(find(id), id); }

std::optional<BestOfRow> BestOfTable::find(base::BestOfId id) {
  return find_one(store_, "WHERE id = ?", id);
}

std::optional<BestOfRow> BestOfTable::find_of(base::AttemptId id) {
  return find_one(store_, "WHERE id = (SELECT best_of FROM best_of_attempts WHERE id = ?)", id);
}

std::vector<BestOfRow> BestOfTable::of_workspace(base::WorkspaceId workspace) {
  Statement query =
      store_.prepare(std::string(kSelect) + "WHERE workspace = ? ORDER BY id DESC LIMIT 50");
  query.bind(workspace);
  std::vector<BestOfRow> rows;
  uint64_t bytes = 0;
  while (bytes < kMostListedBytes && query.step()) {
    read_row(query, rows.emplace_back());
    bytes += text_bytes(rows.back().wanted);
  }
  return rows;
}

std::vector<base::BestOfId> BestOfTable::open() {
  Statement query =
      store_.prepare("SELECT id FROM best_of WHERE state IN ('preparing','running') ORDER BY id");
  return query.column<base::BestOfId>();
}

std::vector<AttemptRow> BestOfTable::attempts(base::BestOfId id) {
  return store_.prepare(std::string(kSelectAttempt) + "WHERE best_of = ? ORDER BY number")
      .all<AttemptRow>(read_attempt, id);
}

AttemptRow BestOfTable::attempt(base::AttemptId id) {
  Statement query = store_.prepare(std::string(kSelectAttempt) + "WHERE id = ?");
  return require_row(query.first<AttemptRow>(read_attempt, id), id);
}

uint64_t BestOfTable::count_under_way(uint32_t owner_uid) {
  // Uses the index of unfinished ones: the finished ones may be many.
  Statement query = store_.prepare(
      "SELECT count(*) FROM best_of JOIN best_of_attempts ON best_of_attempts.best_of = best_of.id "
      "WHERE best_of.state IN ('preparing','running') "
      "AND best_of_attempts.state IN ('applying','testing') AND best_of.owner_uid = ?");
  return query.value<uint64_t>(owner_uid).value_or(0);
}

void BestOfTable::start(base::AttemptId id) {
  store_.transaction([&] {
    store_.move(id, AttemptState::waiting, AttemptState::applying);
    change(store_, "UPDATE best_of_attempts SET started_wall_ms = ? WHERE id = ?",
           store_.clock().wall_ms(), id);
  });
}

void BestOfTable::set_each(base::AttemptId id, base::ExecId exec) {
  write(store_, "UPDATE best_of_attempts SET each_exec = ? WHERE id = ?", exec, id);
}

void BestOfTable::begin_test(base::AttemptId id, const std::optional<AttemptDiff>& diff) {
  store_.transaction([&] {
    store_.move(id, AttemptState::applying, AttemptState::testing);
    if (!diff) return;
    change(store_,
           "UPDATE best_of_attempts SET measured = 1, diff_files = ?, diff_added = ?, "
           "diff_removed = ?, diff_bytes = ? WHERE id = ?",
           diff->files, diff->added, diff->removed, diff->bytes, id);
  });
}

void BestOfTable::set_test(base::AttemptId id, base::ExecId exec) {
  write(store_, "UPDATE best_of_attempts SET test_exec = ? WHERE id = ?", exec, id);
}

void BestOfTable::end(const AttemptRow& row, const End& end) {
  store_.transaction([&] {
    store_.move(row.id, row.state, end.state, end.reason);
    change(store_, "UPDATE best_of_attempts SET tail = ?, ended_wall_ms = ? WHERE id = ?",
           Blob{end.tail}, store_.clock().wall_ms(), row.id);
  });
}

}  // namespace moorage::state_db
