// The idempotency key of the request that a verb runs for, and the one rule for what a repeat gets:
// the final answer of the first. The dispatcher gives kept answers and keeps new ones; a verb joins
// the key to its effect, by the key in the row that it writes or by `join_key` in the transaction
// of the effect. So a daemon that dies before the answer was kept finds at the repeat that the
// effect is there, and answers from it, or that it is not, and then the verb runs anew.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "state_db/idempotency.h"
#include "workspace/access.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::workspace {

class KeyedRequest {
 public:
  // `head`: all that says what is asked for, but the body.
  KeyedRequest(uint32_t owner_uid, std::string key, std::string head);
  state_db::IdempotentRequest identity() const {
    const std::lock_guard lock(mutex_);
    return identity_;
  }
  // Of an upload, once its body is here; its verb may be at work on another thread by then.
  void set_body_hash(const std::string& hash);
  // What the verb of an earlier repeat joined to the key before the daemon died; empty: nothing.
  std::string begun{};
  // Set with an answer that says nothing final: the repeat after this one asks again.
  std::atomic<bool> undecided{false};
  std::shared_ptr<void> until_answered{};  // what a verb wants to last until its answer is kept

 private:
  const std::string head_;
  mutable std::mutex mutex_;
  state_db::IdempotentRequest identity_;
};

// What a stop, a delete, an update or a share joins to its key: all that its answer has and the
// rows have not.
struct JoinedVerb {
  base::WorkspaceId workspace;
  std::vector<base::ExecId> ended{};  // commands
  std::string notice{};

  std::string subject() const;
  template <typename View>
  View in(View view) const {
    view.notice = notice;
    view.ended = ended;
    return view;
  }
  static JoinedVerb parse(const std::string& subject);
};

// All three do nothing for a request without a key.
void join_key(state_db::Store& store, const Caller& caller, const std::string& subject);
bool has_begun(const Caller& caller);
// The key and the hash for a row that carries them; of a shared workspace, where another member may
// use the same key.
std::pair<std::optional<std::string>, std::string> key_of(const Caller& caller);
// Conflict, which is not kept: what an earlier life of this daemon began is not settled yet.
[[noreturn]] void refuse_unsettled(const Caller& caller, const std::string& what);

}  // namespace moorage::workspace
