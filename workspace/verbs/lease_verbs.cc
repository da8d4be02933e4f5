#include "workspace/verbs/lease_verbs.h"

#include "base/crash_point.h"
#include "base/error.h"
#include "base/limit_ranges.h"
#include "base/log.h"
#include "state_db/store.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(acquire_after_intent, "lease.acquire.after_intent");
MOORAGE_CRASH_POINT(takeover_after_intent, "lease.takeover.after_intent");
MOORAGE_CRASH_POINT(takeover_after_stop, "lease.takeover.after_stop");

constexpr size_t kMaxHolderBytes = 200;

void check_request(const Leases::Wanted& wanted) {
  if (wanted.holder.empty() || wanted.holder.size() > kMaxHolderBytes ||
      has_control(wanted.holder)) {
    throw Error(Code::invalid_argument, "a lease holder must have 1 to 200 printable bytes",
                "name who works there, for example an agent and its host");
  }
  if (wanted.ttl_ms < base::kLeastTtl_s * 1000 || wanted.ttl_ms > base::kMostTtl_s * 1000) {
    throw Error(Code::invalid_argument, "ttl_s must be between 5 and 3600");
  }
}

}  // namespace

LeaseView LeaseVerbs::acquire(const Caller& caller, const std::string& name,
                              const Leases::Wanted& wanted) {
  check_request(wanted);
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  // Take the lock, so that no verb is half done when the holder changes.
  const auto guard = context_.locks.lock(found.id.str(), "lease");
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  if (row.state != WorkspaceState::ready) {
    throw Error(Code::conflict, row.name + " is " + std::string(state_db::state_name(row.state)),
                "only a ready workspace can be leased");
  }
  LeaseView lease = leases_.acquire(caller, row, wanted);
  base::log(base::LogLevel::info, "lease.acquired",
            {{"ws", row.id}, {"generation", lease.row.generation}, {"uid", caller.uid}});
  if (!lease.row.clearing) {
    acquire_after_intent.pass();
    return lease;
  }
  takeover_after_intent.pass();
  finish_takeover(row);
  LeaseView cleared = leases_.look(row.id).value();
  cleared.token = std::move(lease.token);
  return cleared;
}

void LeaseVerbs::finish_takeover(const state_db::WorkspaceRow& row) {
  if (row.state == WorkspaceState::ready) {
    const auto lease = leases_.look(row.id);
    start_stop_.stop_sandbox(row,
                             "the lease was taken over by " + (lease ? lease->row.holder : ""));
  }
  takeover_after_stop.pass();
  leases_.cleared(row.id);
}

}  // namespace moorage::workspace
