#include "state_db/idempotency.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {

using base::Code;
using base::Error;

std::optional<KeptAnswer> IdempotencyKeys::find(const IdempotentRequest& request) {
  Statement query = store_.prepare(
      "SELECT hash, status, body FROM idempotency_keys WHERE owner_uid = ? AND key = ?");
  query.bind(request.owner_uid, request.key);
  if (!query.step()) return std::nullopt;
  std::string hash;
  KeptAnswer answer;
  query.read(hash, answer.status, answer.body);
  if (hash == request.hash) return answer;
  throw Error(Code::already_exists,
              "the idempotency key " + request.key + " was used for another request",
              "Use a new key for a new request.");
}

void IdempotencyKeys::put(const IdempotentRequest& request, const KeptAnswer& answer) {
  store_.transaction([&] {
    store_
        .prepare(
            "INSERT INTO idempotency_keys (owner_uid, key, hash, status, body, wall_ms) "
            "VALUES (?, ?, ?, ?, ?, ?)")
        .run(request.owner_uid, request.key, request.hash, answer.status, Blob{answer.body},
             store_.clock().wall_ms());
  });
}

int64_t IdempotencyKeys::expire() {
  return store_.transaction([&] {
    return store_.prepare("DELETE FROM idempotency_keys WHERE wall_ms < ?")
        .run(store_.clock().wall_ms() - kKeepAnswersMs);
  });
}

}  // namespace moorage::state_db
