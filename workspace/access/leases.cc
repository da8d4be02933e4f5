#include "workspace/access/leases.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "workspace/access/keyed_request.h"

namespace moorage::workspace {
namespace {

using state_db::LeaseRow;
using state_db::WorkspaceRow;

// If nothing was asked for this long (sweep() asks once a second), this process was suspended.
constexpr int64_t kAbsent_ms = 10'000;
constexpr std::chrono::seconds kPatience{30};  // for changes in progress

std::string person(const LeaseRow& row) {
  return row.holder + " (" + user_name(row.holder_uid) + ", lease " +
         std::to_string(row.generation) + ")";
}

constexpr size_t kSecretBytes = 32;
constexpr size_t kMaxClaims = 33;

bool is_secret(std::string_view text) {
  return text.size() == 2 * kSecretBytes &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<LeaseClaim> parse_claim(std::string_view text) {
  LeaseClaim claim;
  const bool named = text.find('.') != text.npos;
  if (named) {
    const auto workspace = base::WorkspaceId::parse(base::take_until(text, '.'));
    if (!workspace) return std::nullopt;
    claim.workspace = *workspace;
  }
  const bool secret = text.find('.') != text.npos;
  const std::string_view number = base::take_until(text, '.');
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, claim.generation);
  if (parsed.ec != std::errc() || parsed.ptr != end || claim.generation <= 0) return std::nullopt;
  if (!secret) return claim;
  if (!is_secret(text)) return std::nullopt;
  claim.secret_hash = base::sha256_hex(text);
  return claim;
}

std::string new_lease_secret() { return base::random_hex(kSecretBytes); }

std::string lease_token(base::WorkspaceId workspace, int64_t generation, std::string_view secret) {
  return workspace.str() + "." + std::to_string(generation) + "." + std::string(secret);
}

}  // namespace

std::vector<LeaseClaim> parse_lease_claims(std::string_view text) {
  std::vector<LeaseClaim> claims;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto claim = parse_claim(text.substr(0, comma));
    const bool twice = claim && std::any_of(claims.begin(), claims.end(), [&](const auto& other) {
                         return other.workspace == claim->workspace;
                       });
    if (!claim || twice || claims.size() == kMaxClaims) {
      // Keep the value out of the message: it may be a secret.
      throw Error(Code::invalid_argument, "Moorage-Lease is not a lease token",
                  "send the token that came with the lease, ws_N.GENERATION.SECRET; for several "
                  "workspaces send one each, separated by commas");
    }
    claims.push_back(*claim);
    if (comma == text.size()) return claims;
    text.remove_prefix(comma + 1);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
}

// The right to change a lease: nobody else changes it, and no change of the workspace is running.
class Leases::Change {
 public:
  Change(Leases& owner, Lock& lock, base::WorkspaceId id) : owner_(owner), lock_(lock), id_(id) {
    owner_.wait_until(
        lock_, [&] { return !owner_.entries_[id_].changing; }, id_);
    owner_.entries_[id_].changing = true;
    try {
      owner_.wait_until(
          lock_, [&] { return owner_.entries_[id_].writing == 0; }, id_);
    } catch (...) {
      finish();
      throw;
    }
  }
  ~Change() { finish(); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  Entry& entry() { return owner_.entries_[id_]; }
  // Writes to the database without the mutex, so that other leases are not held up. Holds it again
  // afterwards, also if the write throws.
  template <typename Work>
  auto unlocked(Work&& work) {
    lock_.unlock();
    const std::shared_ptr<void> again(nullptr, [this](void*) { lock_.lock(); });
    return work();
  }

 private:
  void finish() {
    entry().changing = false;
    if (!entry().row && entry().writing == 0) owner_.entries_.erase(id_);
    owner_.changed_.notify_all();
  }

  Leases& owner_;
  Lock& lock_;
  base::WorkspaceId id_;
};

Leases::Leases(state_db::Store& store) : store_(store) {
  here_since_ms_ = looked_ms_ = store.clock().boot_ms();
  for (auto& row : state_db::LeaseTable(store).list()) {
    const base::WorkspaceId id = row.workspace;
    entries_[id].row = std::move(row);
  }
}

int64_t Leases::now() {
  const int64_t present = store_.clock().boot_ms();
  if (present - looked_ms_ > kAbsent_ms) here_since_ms_ = present;
  looked_ms_ = std::max(looked_ms_, present);
  return present;
}

bool Leases::has_lapsed(const Entry& entry) {
  const int64_t present = now();
  if (!entry.row || !entry.row->held() || entry.writing > 0) return false;
  return present - std::max(entry.seen_ms, here_since_ms_) > entry.row->ttl_ms;
}

// Makes the lapse durable before anybody relies on it: otherwise a restart would revive the lease.
void Leases::lapse(Lock& lock, base::WorkspaceId id) {
  Change change(*this, lock, id);
  if (!has_lapsed(change.entry())) return;
  const LeaseRow row = *change.entry().row;
  change.unlocked([&] { state_db::LeaseTable(store_).end(id, "lapsed"); });
  change.entry().row->ended = "lapsed";
  base::log(base::LogLevel::info, "lease.lapsed",
            {{"ws", id}, {"generation", row.generation}, {"ttl_ms", row.ttl_ms}});
}

void Leases::wait_until(Lock& lock, const std::function<bool()>& free, base::WorkspaceId id) {
  if (changed_.wait_for(lock, kPatience, free)) return;
  throw Error(Code::conflict, id.str() + " is busy: a change to it is in progress",
              "try again in a moment");
}

void Leases::require(const Caller& caller, const WorkspaceRow& row, Entry& entry) {
  if (caller.is_daemon) return;
  const bool held = entry.row && entry.row->held();
  const LeaseClaim* claim = caller.claim_of(row.id);
  if (!claim) {
    if (held) refuse_held(caller, row, entry);
    return;
  }
  const std::string sent = std::to_string(claim->generation);
  const std::string again = "acquire a new lease: moorage lease acquire " + row.name;
  if (!held) {
    if (!entry.row)
      throw Error(Code::conflict, row.name + " has no lease; you sent lease " + sent,
                  "nothing was changed; " + again);
    const bool known = entry.row->generation == claim->generation;
    throw Error(
        Code::conflict,
        "lease " + sent + " of " + row.name + " is over" + (known ? ": " + entry.row->ended : ""),
        "nothing was changed; " + again);
  }
  if (entry.row->generation != claim->generation) {
    throw Error(Code::conflict,
                "lease " + sent + " of " + row.name + " is over: " + person(*entry.row) +
                    " has held it since " + base::format_utc(entry.row->acquired_wall_ms),
                "nothing was changed; stop, or " + again + " --takeover");
  }
  if (entry.row->secret_hash.empty() || entry.row->secret_hash != claim->secret_hash) {
    throw Error(Code::conflict,
                row.name + " is held by " + person(*entry.row) + ", and you sent " +
                    (claim->secret_hash.empty() ? "no secret" : "another secret"),
                "nothing was changed; send the token that came with the lease, or set "
                "MOORAGE_LEASE to it");
  }
  entry.seen_ms = now();
}

void Leases::refuse_held(const Caller& caller, const WorkspaceRow& row, const Entry& entry) {
  const std::string number = std::to_string(entry.row->generation);
  const int64_t unseen_ms = now() - std::max(entry.seen_ms, here_since_ms_);
  const std::string mine = entry.row->holder_uid == caller.uid
                               ? "if you are the holder, add --lease " + number + "; otherwise "
                               : "";
  throw Error(Code::conflict,
              row.name + " is held by " + person(*entry.row) + ", acquired " +
                  base::format_utc(entry.row->acquired_wall_ms) + ", last seen " +
                  std::to_string(std::max<int64_t>(0, unseen_ms) / 1000) + " s ago",
              "cat, diff and logs need no lease; to write, " + mine +
                  "wait until it is released, or: moorage lease acquire " + row.name +
                  " --takeover");
}

Leases::Writing Leases::write(const Caller& caller, const WorkspaceRow& row) {
  Writing writing = begin(caller, row);
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[row.id];
  if (!caller.is_daemon && entry.row && entry.row->held() && entry.row->clearing) {
    throw Error(Code::conflict,
                row.name + " was taken over, and earlier commands in it have not ended yet",
                "moorage retries every few seconds; see: moorage show " + row.name);
  }
  return writing;
}

Leases::Writing Leases::begin(const Caller& caller, const WorkspaceRow& row) {
  Lock lock(mutex_);
  if (has_lapsed(entries_[row.id])) lapse(lock, row.id);
  wait_until(
      lock, [&] { return !entries_[row.id].changing; }, row.id);
  Entry& entry = entries_[row.id];
  ++entry.writing;
  Writing writing(this, row.id);
  try {
    require(caller, row, entry);
  } catch (...) {
    lock.unlock();  // before `writing` is destroyed: its destructor takes the lock
    throw;
  }
  lock.unlock();
  return writing;
}

void Leases::done_writing(base::WorkspaceId id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (--found->second.writing > 0) return;
  changed_.notify_all();
  if (!found->second.row && !found->second.changing) entries_.erase(found);
}

LeaseView Leases::view(const Entry& entry) {
  const int64_t present = now();
  return {*entry.row, present - std::max(entry.seen_ms, here_since_ms_), {}};
}

LeaseView Leases::acquire(const Caller& caller, const WorkspaceRow& row, const Wanted& wanted) {
  Lock lock(mutex_);
  if (has_lapsed(entries_[row.id])) lapse(lock, row.id);
  Change change(*this, lock, row.id);
  const auto before = change.entry().row;
  const bool held = before && before->held();
  if (held && !wanted.key.empty() && before->request_key == wanted.key &&
      before->holder_uid == caller.uid && before->holder == wanted.holder) {
    const std::string secret = new_lease_secret();
    const std::string hash = base::sha256_hex(secret);
    change.unlocked([&] { state_db::LeaseTable(store_).renew_secret(row.id, hash); });
    change.entry().row->secret_hash = hash;
    LeaseView again = view(change.entry());
    again.token = lease_token(row.id, again.row.generation, secret);
    return again;
  }
  if (has_begun(caller)) {
    throw Error(Code::conflict, "this request's lease of " + row.name + " is over",
                "acquire another one, with a new idempotency key");
  }
  if (held && !wanted.take_over) refuse_held(caller, row, change.entry());
  const bool ends_all = before && (held || before->ended == "lapsed");
  const auto running = state_db::ExecTable(store_).list(
      {.workspace = row.id, .state = state_db::ExecState::running, .limit = 1});
  if (!running.empty() && !ends_all && !wanted.take_over && !wanted.keep_execs) {
    throw Error(Code::conflict,
                row.name + " is in use: " + running.front().id.str() + " runs without a lease",
                "wait for it, or: moorage lease acquire " + row.name +
                    " --takeover, which ends it; --keep-execs lets it run on beside you");
  }
  state_db::NewLease lease;
  lease.workspace = row.id;
  lease.holder = wanted.holder;
  lease.holder_uid = caller.uid;
  lease.ttl_ms = wanted.ttl_ms;
  const std::string secret = new_lease_secret();
  lease.secret_hash = base::sha256_hex(secret);
  lease.end_execs = (ends_all || !running.empty()) && !wanted.keep_execs;
  if (!wanted.key.empty()) lease.request_key = wanted.key;
  auto granted = change.unlocked([&] {
    return store_.transaction([&] {
      join_key(store_, caller, row.id.str());
      return state_db::LeaseTable(store_).grant(lease);
    });
  });
  Entry& entry = change.entry();
  entry.row = std::move(granted);
  entry.seen_ms = now();
  LeaseView mine = view(entry);
  mine.token = lease_token(row.id, mine.row.generation, secret);
  return mine;
}

void Leases::cleared(base::WorkspaceId id) {
  state_db::LeaseTable(store_).set_cleared(id);
  const std::lock_guard lock(mutex_);
  if (auto& entry = entries_[id]; entry.row) entry.row->clearing = false;
}

namespace {

void require_claim(const Caller& caller, const WorkspaceRow& row) {
  if (caller.claim_of(row.id)) return;
  throw Error(Code::invalid_argument, "say which lease of " + row.name + " you mean",
              "--lease N or MOORAGE_LEASE; through the API, the header Moorage-Lease");
}

}  // namespace

LeaseView Leases::heartbeat(const Caller& caller, const WorkspaceRow& row) {
  require_claim(caller, row);
  const Writing writing = begin(caller, row);
  const std::lock_guard lock(mutex_);
  return view(entries_[row.id]);
}

void Leases::release(const Caller& caller, const WorkspaceRow& row) {
  require_claim(caller, row);
  Lock lock(mutex_);
  if (has_lapsed(entries_[row.id])) lapse(lock, row.id);
  Change change(*this, lock, row.id);
  require(caller, row, change.entry());
  change.unlocked([&] {
    store_.transaction([&] {
      state_db::LeaseTable(store_).end(row.id, "released");
      join_key(store_, caller, row.id.str());
    });
  });
  change.entry().row->ended = "released";
}

void Leases::end(base::WorkspaceId id, const std::string& how, std::optional<int64_t> generation) {
  Lock lock(mutex_);
  Change change(*this, lock, id);
  const auto& row = change.entry().row;
  if (!row || !row->held() || (generation && row->generation != *generation)) return;
  change.unlocked([&] { state_db::LeaseTable(store_).end(id, how); });
  change.entry().row->ended = how;
}

std::optional<LeaseView> Leases::look(base::WorkspaceId id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.row) return std::nullopt;
  LeaseView seen = view(found->second);
  if (has_lapsed(found->second)) seen.row.ended = "lapsed";
  return seen;
}

std::optional<LeaseView> Leases::held(base::WorkspaceId id) {
  auto seen = look(id);
  if (seen && !seen->row.held()) seen.reset();
  return seen;
}

std::vector<base::WorkspaceId> Leases::being_cleared() {
  const std::lock_guard lock(mutex_);
  std::vector<base::WorkspaceId> ids;
  for (const auto& [id, entry] : entries_) {
    if (entry.row && entry.row->clearing) ids.push_back(id);
  }
  return ids;
}

void Leases::sweep() {
  Lock lock(mutex_);
  std::vector<base::WorkspaceId> lapsed;
  now();
  for (const auto& [id, entry] : entries_) {
    if (has_lapsed(entry) && !entry.changing) lapsed.push_back(id);
  }
  for (const auto id : lapsed) lapse(lock, id);
}

}  // namespace moorage::workspace
