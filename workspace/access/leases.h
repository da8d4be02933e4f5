// The active writer leases: who may change a workspace now. Every change holds a Writing around its
// effect, so a lease never changes hands between the check and the effect: a takeover waits for the
// changes in progress, and none of the former holder's comes after it.
//
// A lease lapses when its holder sends nothing for its ttl: no heartbeat and no change. The time is
// counted in memory, by CLOCK_BOOTTIME; a heartbeat writes nothing. If this daemon just started, or
// was suspended (stopped, or the host slept), the time counts from its return: neither a restart
// nor a clock jump makes a lease lapse. A lapse becomes durable before anybody may rely on it.
//
// Order of locks: workspace, its files, Writing, the store.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "state_db/tables/leases.h"
#include "workspace/access/access.h"

namespace moorage::workspace {

struct LeaseView {
  state_db::LeaseRow row;
  int64_t seen_ms_ago = 0;  // since the holder's last request
  std::string token{};      // only in the answer to the acquire
};

// Parses the header Moorage-Lease: up to 33 claims separated by commas, one for each workspace. The
// token "ws_12.5.SECRET" (workspace, generation, 256 random bits as hex) proves a lease; only the
// holder gets it, in the answer to the acquire. The store keeps the SHA-256 of the secret, and a
// request's secret is hashed once read. "ws_12.5" and "5" prove nothing; they only get a clear
// refusal when that lease is over. "5" refers to the workspace that the request names.
std::vector<LeaseClaim> parse_lease_claims(std::string_view text);

class Leases {
 public:
  explicit Leases(state_db::Store& store);

  class Writing {
   public:
    Writing() = default;
    Writing(Leases* owner, base::WorkspaceId id) : owner_(owner), id_(id) {}
    Writing(Writing&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_) {}
    Writing& operator=(Writing&&) = delete;
    ~Writing() {
      if (owner_ != nullptr) owner_->done_writing(id_);
    }

   private:
    Leases* owner_ = nullptr;
    base::WorkspaceId id_;
  };
  // Throws conflict: another holder has the lease, the request carries an ended lease or a wrong
  // secret, or commands from before a takeover have not ended yet.
  Writing write(const Caller& caller, const state_db::WorkspaceRow& row);
  // An early check: the same refusals, before any preparation.
  void check(const Caller& caller, const state_db::WorkspaceRow& row) { write(caller, row); }

  struct Wanted {
    std::string holder;
    int64_t ttl_ms = 0;
    bool take_over = false;
    bool keep_execs = false;
    std::string key;
  };
  // Throws conflict while another holder has the lease, or while a command runs without one, unless
  // `take_over` is set. Durable on return. A repeat with the same key gets the same generation with
  // a new secret, because the first answer was lost. If the answer says `clearing`, the caller must
  // end the earlier commands, then call cleared().
  LeaseView acquire(const Caller& caller, const state_db::WorkspaceRow& row, const Wanted& wanted);
  void cleared(base::WorkspaceId id);
  // Both need the current lease.
  LeaseView heartbeat(const Caller& caller, const state_db::WorkspaceRow& row);
  void release(const Caller& caller, const state_db::WorkspaceRow& row);
  // Regardless of the holder; given a generation, only that lease.
  void end(base::WorkspaceId id, const std::string& how, std::optional<int64_t> generation = {});

  // The last lease, held or over; nullopt: never leased.
  std::optional<LeaseView> look(base::WorkspaceId id);
  std::optional<LeaseView> held(base::WorkspaceId id);
  bool is_held(base::WorkspaceId id) { return held(id).has_value(); }
  std::vector<base::WorkspaceId> being_cleared();
  void sweep();  // call about once a second: records lapses

 private:
  struct Entry {
    std::optional<state_db::LeaseRow> row{};
    int64_t seen_ms = 0;
    size_t writing = 0;     // changes in progress
    bool changing = false;  // the lease is changing: no other change begins
  };
  class Change;
  using Lock = std::unique_lock<std::mutex>;

  Writing begin(const Caller& caller, const state_db::WorkspaceRow& row);
  int64_t now();  // boot time; needs mutex_
  bool has_lapsed(const Entry& entry);
  void lapse(Lock& lock, base::WorkspaceId id);
  void wait_until(Lock& lock, const std::function<bool()>& free, base::WorkspaceId id);
  void require(const Caller& caller, const state_db::WorkspaceRow& row, Entry& entry);
  [[noreturn]] void refuse_held(const Caller& caller, const state_db::WorkspaceRow& row,
                                const Entry& entry);
  LeaseView view(const Entry& entry);
  void done_writing(base::WorkspaceId id);

  state_db::Store& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<base::WorkspaceId, Entry> entries_;  // those with a row, and those being changed
  int64_t looked_ms_ = 0;                       // time of the last call
  int64_t here_since_ms_ = 0;                   // earlier requests count as seen at this time
};

}  // namespace moorage::workspace
