// The idempotency key of the request that a verb runs for. One rule covers every repeat: it gets
// the final answer of the first. The dispatcher returns stored answers and stores new ones; a verb
// joins the key to its effect, in the row that it writes or by `join_key` in the effect's
// transaction. If the daemon dies before storing the answer, the repeat finds the effect and
// answers from it, or finds none and runs the verb.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "state_db/tables/idempotency.h"
#include "workspace/access/access.h"
#include "workspace/context/context.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::workspace {

class KeyedRequest {
 public:
  // `head`: everything that identifies the request, except the body.
  KeyedRequest(uint32_t owner_uid, std::string key, std::string head);
  state_db::IdempotentRequest identity() const {
    const std::lock_guard lock(mutex_);
    return identity_;
  }
  // For an upload, once its body is here; its verb may already run on another thread.
  void set_body_hash(const std::string& hash);
  // Joined to the key by an earlier attempt's verb before the daemon died; empty: nothing.
  std::string begun{};
  // Set with an answer that is not final: the next repeat asks again.
  std::atomic<bool> undecided{false};
  std::shared_ptr<void> until_answered{};  // a verb keeps this alive until its answer is stored

 private:
  const std::string head_;
  mutable std::mutex mutex_;
  state_db::IdempotentRequest identity_;
};

// What a stop, a delete, an update or a share joins to its key: the parts of its answer that the
// rows do not hold.
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

// The first three do nothing, and key_of() is empty, for a request without a key.
void join_key(state_db::Store& store, const Caller& caller, const std::string& subject);
JoinKey key_joiner(state_db::Store& store, const Caller& caller);  // refers to both
bool has_begun(const Caller& caller);
// The key and the hash for a row that stores them. The hash includes the owner, because another
// member of a shared workspace may use the same key.
std::pair<std::optional<std::string>, std::string> key_of(const Caller& caller);
// Throws conflict (never stored): work of an earlier daemon process is not settled yet.
[[noreturn]] void refuse_unsettled(const Caller& caller, const std::string& what);

}  // namespace moorage::workspace
