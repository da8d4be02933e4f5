// The writer leases at work: who may change a workspace now. Every change takes a Writing around
// its effect, so that a lease never changes hands between the check and the effect: who takes over
// waits for the changes that are going on, and none of the former holder's comes after.
//
// A lease lapses when nothing was heard of its holder for its ttl: no heartbeat and no change. That
// is counted in memory, by CLOCK_BOOTTIME; a heartbeat writes nothing. What was heard before this
// daemon came up, or while it was not looking (stopped, a host that slept), counts as heard when it
// came back: a restart and a jump of the clock let no lease lapse. A lapse that was noticed is
// durable before anybody is let in by it.
//
// Order of locks: workspace, its files, Writing, the store.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "state_db/leases.h"
#include "workspace/access.h"

namespace moorage::workspace {

struct LeaseView {
  state_db::LeaseRow row;
  int64_t seen_ms_ago = 0;  // since the holder was heard of
  std::string token{};      // in the answer to who acquired it, and nowhere else
};

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
    ~Writing();

   private:
    Leases* owner_ = nullptr;
    base::WorkspaceId id_;
  };
  // Conflict: another holds the lease, the request carries one that is over or a secret that is not
  // the lease's, or what ran before a take-over has not ended yet.
  Writing write(const Caller& caller, const state_db::WorkspaceRow& row);
  // At the door: the same refusals, before anything is prepared.
  void check(const Caller& caller, const state_db::WorkspaceRow& row) { write(caller, row); }

  struct Wanted {
    std::string holder;
    int64_t ttl_ms = 0;
    bool take_over = false;
    bool keep_execs = false;
    std::string key;
  };
  // Conflict while another's lease is held, or a command runs that began without one, unless it is
  // to be taken over. Durable when it returns.
  // A repeat with its key gets the same generation with a new secret: the first answer was lost.
  // `clearing` in the answer: the caller ends what ran before, then calls cleared().
  LeaseView acquire(const Caller& caller, const state_db::WorkspaceRow& row, const Wanted& wanted);
  void cleared(base::WorkspaceId id);
  // Both need the lease that is held.
  LeaseView heartbeat(const Caller& caller, const state_db::WorkspaceRow& row);
  void release(const Caller& caller, const state_db::WorkspaceRow& row);
  void end(base::WorkspaceId id, const std::string& how);  // whoever holds it

  // The last lease, held or over; nothing: there never was one.
  std::optional<LeaseView> look(base::WorkspaceId id);
  bool is_held(base::WorkspaceId id);
  std::vector<base::WorkspaceId> being_cleared();
  void sweep();  // about once a second: what lapsed is written down

 private:
  struct Entry {
    std::optional<state_db::LeaseRow> row{};
    int64_t seen_ms = 0;
    size_t writing = 0;     // changes that are going on
    bool changing = false;  // the lease is: nobody else begins
  };
  class Change;
  using Lock = std::unique_lock<std::mutex>;

  Writing begin(const Caller& caller, const state_db::WorkspaceRow& row);
  int64_t now();  // boot time; with mutex_
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
  int64_t looked_ms_ = 0;                       // when anything was asked last
  int64_t here_since_ms_ = 0;                   // nothing that was heard counts as older
};

}  // namespace moorage::workspace
