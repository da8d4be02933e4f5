#include "state_db/tables/idempotency.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "state_db/statement.h"
#include "state_db/store.h"
#include "state_db/store_age.h"

namespace moorage::state_db {

bool IdempotencyKeys::is_known(const IdempotentRequest& request) {
  Statement query =
      store_.prepare("SELECT 1 FROM idempotency_keys WHERE owner_uid = ? AND key = ?");
  query.bind(request.owner_uid, request.key);
  return query.step();
}

std::optional<KeptRequest> IdempotencyKeys::find(const IdempotentRequest& request) {
  Statement query = store_.prepare(
      "SELECT hash, status, headers, body, subject FROM idempotency_keys WHERE owner_uid = ? AND "
      "key = ?");
  query.bind(request.owner_uid, request.key);
  if (!query.step()) return std::nullopt;
  std::string hash;
  KeptAnswer answer;
  KeptRequest kept;
  query.read(hash, answer.status, answer.headers, answer.body, kept.subject);
  if (hash != request.hash && (answer.status != 0 || hash != request.head)) {
    throw Error(Code::already_exists, "the idempotency key was used for another request",
                "Use a new key for a new request.");
  }
  if (answer.status != 0) kept.answer = std::move(answer);
  return kept;
}

void IdempotencyKeys::begin(const IdempotentRequest& request, const std::string& subject) {
  store_.transaction([&] {
    store_
        .prepare(
            "INSERT OR REPLACE INTO idempotency_keys (owner_uid, key, hash, status, body, age_ms, "
            "headers, subject) VALUES (?, ?, ?, 0, x'', ?, '', ?)")
        .run(request.owner_uid, request.key, request.hash.empty() ? request.head : request.hash,
             StoreAge(store_).now_ms(), subject);
  });
}

void IdempotencyKeys::put(const IdempotentRequest& request, const KeptAnswer& answer) {
  store_.transaction([&] {
    store_
        .prepare(
            "INSERT OR REPLACE INTO idempotency_keys (owner_uid, key, hash, status, body, age_ms, "
            "headers, subject) VALUES (?, ?, ?, ?, ?, ?, ?, '')")
        .run(request.owner_uid, request.key, request.hash, answer.status, Blob{answer.body},
             StoreAge(store_).now_ms(), answer.headers);
  });
}

void IdempotencyKeys::forget_begun(const std::string& subject) {
  write(store_, "DELETE FROM idempotency_keys WHERE status = 0 AND subject = ?", subject);
}

// Keys in rows stand in for answers not written yet; a fork's key is the request's with "/N". An
// exec keeps its key forever: a command never runs twice.
int64_t IdempotencyKeys::expire() {
  return store_.transaction([&] {
    const int64_t before = StoreAge(store_).now_ms() - kKeepAnswersMs;
    std::vector<std::pair<uint32_t, std::string>> old;
    {
      Statement query =
          store_.prepare("SELECT owner_uid, key FROM idempotency_keys WHERE age_ms < ?");
      query.bind(before);
      while (query.step()) {
        auto& [owner_uid, key] = old.emplace_back();
        query.read(owner_uid, key);
      }
    }
    for (const auto& [owner_uid, key] : old) {
      store_
          .prepare(
              "UPDATE workspaces SET idempotency_key = NULL WHERE owner_uid = ?1 AND "
              "(idempotency_key = ?2 OR (idempotency_key > ?2 || '/' AND idempotency_key < ?2 || "
              "'0'))")
          .run(owner_uid, key);
      store_
          .prepare(
              "UPDATE best_of SET idempotency_key = NULL WHERE owner_uid = ? AND idempotency_key "
              "= ?")
          .run(owner_uid, key);
    }
    store_
        .prepare(
            "UPDATE snapshots SET idempotency_key = NULL WHERE idempotency_key IS NOT NULL AND "
            "created_age_ms < ?")
        .run(before);
    store_.prepare("DELETE FROM idempotency_keys WHERE age_ms < ?").run(before);
    return static_cast<int64_t>(old.size());
  });
}

}  // namespace moorage::state_db
