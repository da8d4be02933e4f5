// Idempotency keys: a request with a key runs once, its answer is kept a day and given to every
// repeat (same user, key, method, target and body). Only successes are kept: a refused request did
// nothing, so a repeat may try again. The answer is written after the verb; if a crash comes
// between the two, a repeat runs the verb again, so verbs where that would double something keep
// the key in their own row (execs, workspaces).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/exchange.h"

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
  Claim claim(const Request& request);  // of a request without a key: empty

  // Both do nothing without a key. find: already_exists if the key was used for another request.
  std::optional<Reply> find(const Request& request, const std::string& body_hash);
  void keep(const Request& request, const std::string& body_hash, const Reply& reply);

 private:
  state_db::Store& store_;
  std::mutex mutex_;
  std::set<std::pair<uint32_t, std::string>> running_;
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
