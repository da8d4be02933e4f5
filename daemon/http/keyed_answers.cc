#include "daemon/http/keyed_answers.h"

#include <algorithm>

#include "base/digest.h"
#include "base/log.h"
#include "state_db/store.h"

namespace moorage::daemon {
namespace {

constexpr size_t kMaxKeyBytes = 128;
constexpr size_t kMostLater = 1000;

// Everything that identifies the request, except the body.
std::string head_of(const Request& request) {
  std::string text = request.method + "\n" + request.path + "\n";
  for (const auto& [name, value] : request.query) {
    text += name + "=" + std::to_string(value.size()) + ":" + value + "\n";
  }
  if (!request.if_match.empty()) text += "If-Match: " + request.if_match + "\n";
  if (!request.if_none_match.empty()) text += "If-None-Match: " + request.if_none_match + "\n";
  return text;
}

// Header names and values are the daemon's own: none contains a line break.
std::string lines_of(const Reply& reply) {
  std::string lines;
  for (const auto& [name, value] : reply.headers) lines += name + ": " + value + "\n";
  return lines;
}

Reply reply_of(const state_db::KeptAnswer& answer) {
  Reply reply = Reply::json(answer.body, answer.status);
  for (size_t at = 0; at < answer.headers.size();) {
    const size_t colon = answer.headers.find(": ", at);
    const size_t end = answer.headers.find('\n', at);
    reply.headers.emplace_back(answer.headers.substr(at, colon - at),
                               answer.headers.substr(colon + 2, end - colon - 2));
    at = end + 1;
  }
  return reply;
}

bool is_final(Keep how, const base::Error& error) {
  // A command may have reached the sandbox although no answer came in time; its row records that.
  if (error.code() == Code::deadline_exceeded) return how != Keep::refusal;
  return error.code() != Code::unknown_outcome;
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
  std::pair<uint32_t, std::string> key{request.caller.uid, request.idempotency_key};
  const std::lock_guard lock(mutex_);
  if (!running_.insert(key).second) {
    throw Error(Code::conflict, "another request with this idempotency key is in progress",
                "retry shortly: you get the answer of the first request");
  }
  return {this, std::move(key)};
}

std::shared_ptr<workspace::KeyedRequest> KeyedAnswers::begin(const Route& route,
                                                             const Request& request) {
  // If a row keeps the key, the key belongs to the thing that the path names, as in that row.
  const bool of_row = route.keep == Keep::refusal;
  return std::make_shared<workspace::KeyedRequest>(
      request.caller.uid,
      of_row ? request.path + "\n" + request.idempotency_key : request.idempotency_key,
      head_of(request));
}

bool KeyedAnswers::is_known(const workspace::KeyedRequest& request) {
  const auto identity = request.identity();
  {
    const std::lock_guard lock(mutex_);
    if (later_.contains({identity.owner_uid, identity.key})) return true;
  }
  return state_db::IdempotencyKeys(store_).is_known(identity);
}

std::optional<Reply> KeyedAnswers::find(workspace::KeyedRequest& request) {
  const auto identity = request.identity();
  {
    const std::lock_guard lock(mutex_);
    const auto later = later_.find({identity.owner_uid, identity.key});
    if (later != later_.end()) {
      if (later->second.request.hash == identity.hash) return reply_of(later->second.answer);
      throw Error(Code::already_exists, "the idempotency key was used for another request",
                  "use a new key for a new request");
    }
  }
  const auto kept = state_db::IdempotencyKeys(store_).find(identity);
  if (!kept) return std::nullopt;
  if (kept->answer) return reply_of(*kept->answer);
  request.begun = kept->subject;
  return std::nullopt;
}

void KeyedAnswers::keep(Keep how, const workspace::KeyedRequest& request, const Reply& reply) {
  if (how == Keep::refusal || reply.source) return;
  Later later{request.identity(), {reply.status, lines_of(reply), reply.body}};
  if (how == Keep::joined && reply.status < 400) return add_later(std::move(later));
  try {
    state_db::IdempotencyKeys(store_).put(later.request, later.answer);
  } catch (const Error& error) {  // the effect exists, even without its record
    base::log(base::LogLevel::warning, "http.answer_not_kept",
              {{"key", later.request.key}, {"error", error.message()}});
    add_later(std::move(later));
  }
}

void KeyedAnswers::keep_refusal(Keep how, const workspace::KeyedRequest& request,
                                const Error& error) {
  if (request.undecided || !is_final(how, error)) return;
  keep(Keep::answer, request, error_reply(error));
}

void KeyedAnswers::add_later(Later later) {
  bool many = false;
  {
    const std::lock_guard lock(mutex_);
    std::pair key{later.request.owner_uid, later.request.key};
    later_.insert_or_assign(std::move(key), std::move(later));
    many = later_.size() >= kMostLater;
  }
  if (many) write_later();
}

void KeyedAnswers::write_later() {
  decltype(later_) due;
  {
    const std::lock_guard lock(mutex_);
    due = later_;
  }
  if (due.empty()) return;
  try {
    store_.transaction([&] {
      state_db::IdempotencyKeys table(store_);
      for (const auto& [key, one] : due) table.put(one.request, one.answer);
    });
  } catch (const Error& error) {  // keep them here until there is room
    base::log(base::LogLevel::warning, "http.answers_not_kept", {{"error", error.message()}});
    return;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [key, one] : due) later_.erase(key);
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
