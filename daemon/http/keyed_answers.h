// Idempotency keys: a request with a key runs once. Its final answer, success or error, is kept for
// a day and returned to each repeat (same user, key, method, target, conditions and body).
//
// Every answer of the verb is final, even a refusal without effect: a client that wants another try
// takes a new key. Not final are "in progress" and an unknown outcome (unknown_outcome; for an exec
// also deadline_exceeded), because repeats exist for those. An upload that was cut off or refused
// before its end does not count as a request.
//
// Errors are written before they are sent. So are successes, except for verbs that join the key to
// their effect (workspace/access/keyed_request.h): those are written within a second, and if the
// daemon dies first, the answer is rebuilt from the joined effect.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/http/exchange.h"
#include "daemon/http/router.h"
#include "state_db/tables/idempotency.h"
#include "workspace/access/keyed_request.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::daemon {

// 1-128 printable ASCII characters, else invalid_argument.
void check_idempotency_key(std::string_view key);

class KeyedAnswers {
 public:
  explicit KeyedAnswers(state_db::Store& store) : store_(store) {}

  // While it exists, the same key of the same user is refused (conflict).
  class Claim {
   public:
    Claim(KeyedAnswers* owner, std::pair<uint32_t, std::string> key)
        : owner_(owner), key_(std::move(key)) {}
    Claim(Claim&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), key_(std::move(other.key_)) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim();

   private:
    KeyedAnswers* owner_ = nullptr;
    std::pair<uint32_t, std::string> key_;
  };
  Claim claim(const Request& request);

  // Without the body's hash, which an upload sets at its end.
  static std::shared_ptr<workspace::KeyedRequest> begin(const Route& route, const Request& request);
  bool is_known(const workspace::KeyedRequest& request);
  // The kept answer; without one, fills in `begun` of the request. already_exists: the key was
  // used for another request.
  std::optional<Reply> find(workspace::KeyedRequest& request);
  void keep(Keep how, const workspace::KeyedRequest& request, const Reply& reply);
  void keep_refusal(Keep how, const workspace::KeyedRequest& request, const base::Error& error);
  // Writes the deferred answers. Call it every second, and at the end.
  void write_later();

 private:
  struct Later {
    state_db::IdempotentRequest request;
    state_db::KeptAnswer answer;
  };
  void add_later(Later later);

  state_db::Store& store_;
  std::mutex mutex_;
  std::set<std::pair<uint32_t, std::string>> running_;
  std::map<std::pair<uint32_t, std::string>, Later> later_;
};

// The hash of a body, the same however the body is split into pieces.
class BodyHash {
 public:
  void add(std::string_view piece);
  std::string finish();

 private:
  static constexpr size_t kBlockBytes = 64 << 10;
  std::string block_;
  std::string chain_;
};

}  // namespace moorage::daemon
