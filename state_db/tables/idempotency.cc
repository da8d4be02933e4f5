#include "state_db/tables/idempotency.h"

#include <utility>

#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/store_age.h"

namespace moorage::state_db {
namespace {

void put_row(Store& store, const IdempotentRequest& request, const KeptAnswer& answer,
             const std::string& subject) {
  store.transaction([&] {
    insert(store,
           "INSERT OR REPLACE INTO idempotency_keys (owner_uid, key, hash, status, body, age_ms, "
           "headers, subject)",
           request.owner_uid, request.key, request.hash, answer.status, Blob{answer.body},
           StoreAge(store).now_ms(), answer.headers, subject);
  });
}

}  // namespace

bool IdempotencyKeys::is_known(const IdempotentRequest& request) {
  Statement query =
      store_.prepare("SELECT 1 FROM idempotency_keys WHERE owner_uid = ? AND key = ?");
  return query.value<bool>(request.owner_uid, request.key).has_value();
}

std::optional<KeptRequest> IdempotencyKeys::find(const IdempotentRequest& request) {
  Statement query = store_.prepare(
      "SELECT hash, status, headers, body, subject FROM idempotency_keys WHERE owner_uid = ? "
      "AND key = ?");
  query.bind(request.owner_uid, request.key);
  if (!query.step()) return std::nullopt;
  std::string hash;
  KeptAnswer answer;
  KeptRequest kept;
  query.read(hash, answer.status, answer.headers, answer.body, kept.subject);
  if (hash != request.hash && (answer.status != 0 || hash != request.head)) {
    throw Error(Code::already_exists, "the idempotency key was used for another request",
                "use a new key for a new request");
  }
  if (answer.status != 0) kept.answer = std::move(answer);
  return kept;
}

void IdempotencyKeys::begin(const IdempotentRequest& request, const std::string& subject) {
  IdempotentRequest begun = request;
  if (begun.hash.empty()) begun.hash = begun.head;
  put_row(store_, begun, {}, subject);
}

void IdempotencyKeys::put(const IdempotentRequest& request, const KeptAnswer& answer) {
  put_row(store_, request, answer, "");
}

void IdempotencyKeys::forget_begun(const std::string& subject) {
  write(store_, "DELETE FROM idempotency_keys WHERE status = 0 AND subject = ?", subject);
}

// Keys in rows stand in for answers not written yet; a fork's key is the request's with "/N". An
// exec keeps its key forever: a command never runs twice.
int64_t IdempotencyKeys::expire() {
  return store_.transaction([&] {
    const int64_t before = StoreAge(store_).now_ms() - kKeepAnswersMs;
    using Key = std::pair<uint32_t, std::string>;
    const auto old =
        store_.prepare("SELECT owner_uid, key FROM idempotency_keys WHERE age_ms < ?")
            .all<Key>([](Statement& row, Key& key) { row.read(key.first, key.second); }, before);
    for (const auto& [owner_uid, key] : old) {
      change(
          store_,
          "UPDATE workspaces SET idempotency_key = NULL WHERE owner_uid = ?1 AND "
          "(idempotency_key = ?2 OR (idempotency_key > ?2 || '/' AND idempotency_key < ?2 || '0'))",
          owner_uid, key);
      change(
          store_,
          "UPDATE best_of SET idempotency_key = NULL WHERE owner_uid = ? AND idempotency_key = ?",
          owner_uid, key);
    }
    change(store_,
           "UPDATE snapshots SET idempotency_key = NULL WHERE idempotency_key IS NOT NULL "
           "AND created_age_ms < ?",
           before);
    change(store_, "DELETE FROM idempotency_keys WHERE age_ms < ?", before);
    return static_cast<int64_t>(old.size());
  });
}

}  // namespace moorage::state_db
