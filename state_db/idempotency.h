// Answers of mutating requests, kept for retries: (owner, key) -> hash of the request, status,
// body. Put the answer in the transaction that writes the effect (Store::transaction), so that a
// crash leaves both or neither. Workspaces and execs have their keys in their own rows and do not
// need this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moorage::state_db {

class Store;

struct IdempotentRequest {
  uint32_t owner_uid = 0;
  std::string key{};
  std::string hash{};  // of method, path and body
};

struct KeptAnswer {
  int status = 0;
  std::string body{};
};

inline constexpr int64_t kKeepAnswersMs = 24LL * 3600 * 1000;

class IdempotencyKeys {
 public:
  explicit IdempotencyKeys(Store& store) : store_(store) {}

  // The kept answer. already_exists: the key was used for another request.
  std::optional<KeptAnswer> find(const IdempotentRequest& request);
  // already_exists if the key has an answer.
  void put(const IdempotentRequest& request, const KeptAnswer& answer);
  // Drops what is older than kKeepAnswersMs. Returns how many.
  int64_t expire();

 private:
  Store& store_;
};

}  // namespace moorage::state_db
