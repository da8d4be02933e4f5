// Requests with an idempotency key, and their final answers: (owner, key) -> hash of the request,
// status, headers, body. A verb whose effect a repeat could not find by itself writes `begin` in
// the transaction of the effect, so that a crash leaves both or neither; the answer follows, and if
// a crash comes before it, what began names the thing that the answer is about. Workspaces, execs,
// snapshots and best-ofs have the key in their own rows, which are as good as `begin`.
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
  std::string head{};  // the same without the body: what `begin` knows of an upload
};

struct KeptAnswer {
  int status = 0;
  std::string headers{};  // lines "Name: value"
  std::string body{};
};

struct KeptRequest {
  std::optional<KeptAnswer> answer{};
  std::string subject{};  // of one that began and has no answer: an id, or what its verb wrote
};

// By the store's own age (store_age.h): no jump of the wall clock lets one go early.
inline constexpr int64_t kKeepAnswersMs = 24LL * 3600 * 1000;

class IdempotencyKeys {
 public:
  explicit IdempotencyKeys(Store& store) : store_(store) {}

  // Whether the owner used the key, for whatever request.
  bool is_known(const IdempotentRequest& request);
  // already_exists: the key was used for another request.
  std::optional<KeptRequest> find(const IdempotentRequest& request);
  void begin(const IdempotentRequest& request, const std::string& subject);
  void put(const IdempotentRequest& request, const KeptAnswer& answer);
  // What began on `subject` came to nothing: a repeat runs anew.
  void forget_begun(const std::string& subject);
  // Drops what is older than kKeepAnswersMs, in the rows of workspaces, snapshots and best-ofs,
  // too. Returns how many.
  int64_t expire();

 private:
  Store& store_;
};

}  // namespace moorage::state_db
