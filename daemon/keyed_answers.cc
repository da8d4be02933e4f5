#include "daemon/keyed_answers.h"

#include <algorithm>

#include "base/digest.h"
#include "state_db/idempotency.h"
#include "state_db/store.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;

constexpr size_t kMaxKeyBytes = 128;

state_db::IdempotentRequest identity(const Request& request, const std::string& body_hash) {
  std::string text = request.method + "\n" + request.path + "\n";
  for (const auto& [name, value] : request.query) {
    text += name + "=" + std::to_string(value.size()) + ":" + value + "\n";
  }
  return {request.caller.uid, request.idempotency_key, base::sha256_hex(text + body_hash)};
}

}  // namespace

void check_idempotency_key(std::string_view key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (key.empty() || key.size() > kMaxKeyBytes || !printable) {
    throw Error(Code::invalid_argument,
                "Idempotency-Key must be 1 to 128 printable ASCII characters");
  }
}

KeyedAnswers::Claim::~Claim() {
  if (!owner_) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->running_.erase(key_);
}

KeyedAnswers::Claim KeyedAnswers::claim(const Request& request) {
  if (request.idempotency_key.empty()) return {};
  std::pair<uint32_t, std::string> key{request.caller.uid, request.idempotency_key};
  const std::lock_guard lock(mutex_);
  if (!running_.insert(key).second) {
    throw Error(Code::conflict, "the request with this idempotency key is still running",
                "repeat it in a moment: the answer will be the first one's");
  }
  return {this, std::move(key)};
}

std::optional<Reply> KeyedAnswers::find(const Request& request, const std::string& body_hash) {
  if (request.idempotency_key.empty()) return std::nullopt;
  const auto kept = state_db::IdempotencyKeys(store_).find(identity(request, body_hash));
  if (!kept) return std::nullopt;
  return Reply::json(kept->body, kept->status);
}

void KeyedAnswers::keep(const Request& request, const std::string& body_hash, const Reply& reply) {
  if (request.idempotency_key.empty() || reply.source || reply.status >= 300) return;
  state_db::IdempotencyKeys(store_).put(identity(request, body_hash), {reply.status, reply.body});
}

void BodyHash::add(std::string_view piece) {
  while (!piece.empty()) {
    const size_t taken = std::min(piece.size(), kBlockBytes - block_.size());
    block_.append(piece.substr(0, taken));
    piece.remove_prefix(taken);
    if (block_.size() == kBlockBytes) {
      chain_ = base::sha256_hex(chain_ + block_);
      block_.clear();
    }
  }
}

std::string BodyHash::finish() { return base::sha256_hex(chain_ + block_); }

}  // namespace moorage::daemon
