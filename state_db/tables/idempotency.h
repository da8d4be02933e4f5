// Requests with an idempotency key, and their final answers: (owner, key) -> hash of the request,
// status, headers, body. If a retry could not find a verb's effect otherwise, the verb writes
// `begin` in the transaction of the effect, so that a crash leaves both or neither. The answer
// follows; if a crash prevents that, `begin` names the object of the answer. Workspaces, execs,
// snapshots and best-ofs store the key in their own rows instead of `begin`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moorage::state_db {

class Store;

struct IdempotentRequest {
  uint32_t owner_uid = 0;
  std::string key{};
  std::string hash{};  // of method, path, query, conditions and body
  std::string head{};  // the same without the body: all that `begin` knows of an upload
};

struct KeptAnswer {
  int status = 0;
  std::string headers{};  // lines "Name: value"
  std::string body{};
};

struct KeptRequest {
  std::optional<KeptAnswer> answer{};
  std::string subject{};  // of one without an answer yet: an id, or a text of its verb
};

// Measured by the store's age (store_age.h): a jump of the wall clock expires nothing early.
inline constexpr int64_t kKeepAnswersMs = 24LL * 3600 * 1000;

class IdempotencyKeys {
 public:
  explicit IdempotencyKeys(Store& store) : store_(store) {}

  // Whether the owner has used the key, for any request.
  bool is_known(const IdempotentRequest& request);
  // already_exists: the key belongs to another request.
  std::optional<KeptRequest> find(const IdempotentRequest& request);
  void begin(const IdempotentRequest& request, const std::string& subject);
  void put(const IdempotentRequest& request, const KeptAnswer& answer);
  // The work on `subject` was undone: a retry starts over.
  void forget_begun(const std::string& subject);
  // Drops keys older than kKeepAnswersMs, also in the rows of workspaces, snapshots and best-ofs.
  // Returns how many.
  int64_t expire();

 private:
  Store& store_;
};

}  // namespace moorage::state_db
