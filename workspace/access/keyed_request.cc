#include "workspace/access/keyed_request.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/parts.h"
#include "state_db/store.h"

namespace moorage::workspace {

KeyedRequest::KeyedRequest(uint32_t owner_uid, std::string key, std::string head)
    : head_(std::move(head)),
      identity_{.owner_uid = owner_uid, .key = std::move(key), .head = base::sha256_hex(head_)} {}

void KeyedRequest::set_body_hash(const std::string& hash) {
  const std::lock_guard lock(mutex_);
  identity_.hash = base::sha256_hex(head_ + hash);
}

std::string JoinedVerb::subject() const {
  std::string text = workspace.str();
  for (const auto exec : ended) text += " " + exec.str();
  return text + "\n" + notice;
}

JoinedVerb JoinedVerb::parse(const std::string& subject) {
  std::string_view rest = subject;
  const auto words = base::split(base::take_until(rest, '\n'), ' ');
  JoinedVerb joined{.workspace = base::WorkspaceId::parse(words.front()).value(),
                    .notice = std::string(rest)};
  for (size_t n = 1; n < words.size(); ++n)
    joined.ended.push_back(base::ExecId::parse(words[n]).value());
  return joined;
}

void join_key(state_db::Store& store, const Caller& caller, const std::string& subject) {
  if (caller.keyed) state_db::IdempotencyKeys(store).begin(caller.keyed->identity(), subject);
}

JoinKey key_joiner(state_db::Store& store, const Caller& caller) {
  return [&](const std::string& subject) { join_key(store, caller, subject); };
}

bool has_begun(const Caller& caller) { return caller.keyed && !caller.keyed->begun.empty(); }

std::pair<std::optional<std::string>, std::string> key_of(const Caller& caller) {
  if (!caller.keyed) return {};
  const auto identity = caller.keyed->identity();
  return {identity.key, std::to_string(identity.owner_uid) + " " + identity.hash};
}

void refuse_unsettled(const Caller& caller, const std::string& what) {
  if (caller.keyed) caller.keyed->undecided = true;
  throw base::Error(base::Code::conflict,
                    "the request with this idempotency key is in progress: " + what,
                    "repeat it in a moment to get the answer of the first one");
}

}  // namespace moorage::workspace
