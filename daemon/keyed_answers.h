// Idempotency keys: a request with a key runs once, and its final answer, error or not, is kept a
// day and given to every repeat (same user, key, method, target, conditions and body).
//
// Final is every answer of the verb, also a refusal that did nothing: who wants to try again takes
// a new key. Not final is what says that the outcome is not known (unknown_outcome; of an exec
// deadline_exceeded, too), which is what a repeat is for, and that the first one is in progress. An
// upload that was cut, or refused before its end, was no whole request.
//
// Errors are written before they go out. So are successes, but for verbs that join the key to their
// effect (workspace/keyed_request.h): those are written within a second, and if the daemon dies
// before, the answer is made again from what the key was joined to.
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

#include "daemon/exchange.h"
#include "daemon/router.h"
#include "state_db/idempotency.h"
#include "workspace/keyed_request.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::daemon {

// 1-128 printable ASCII characters, else invalid_argument.
void check_idempotency_key(std::string_view key);

class KeyedAnswers {
 public:
  explicit KeyedAnswers(state_db::Store& store) : store_(store) {}

  // While it lives, the same key of the same user is refused (conflict).
  class Claim {
   public:
    Claim() = default;
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

  // Without the hash of the body, which an upload has at its end.
  static std::shared_ptr<workspace::KeyedRequest> begin(const Route& route, const Request& request);
  bool is_known(const workspace::KeyedRequest& request);
  // The kept answer; if there is none, `begun` of the request is filled in. already_exists: the key
  // was used for another request.
  std::optional<Reply> find(workspace::KeyedRequest& request);
  void keep(Keep how, const workspace::KeyedRequest& request, const Reply& reply);
  void keep_refusal(Keep how, const workspace::KeyedRequest& request, const base::Error& error);
  // What may be written later. Call it every second, and at the end.
  void write_later();

 private:
  struct Later {
    state_db::IdempotentRequest request;
    state_db::KeptAnswer answer;
  };
  void add_later(Later later);
  std::optional<state_db::KeptAnswer> find_later(const state_db::IdempotentRequest& request);

  state_db::Store& store_;
  std::mutex mutex_;
  std::set<std::pair<uint32_t, std::string>> running_;
  std::map<std::pair<uint32_t, std::string>, Later> later_;
};

// The hash of a body that comes in pieces, the same however it is cut.
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
