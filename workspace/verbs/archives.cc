#include "workspace/verbs/archives.h"

#include <algorithm>

#include "base/error.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/access/keyed_request.h"
#include "workspace/archive/store.h"

namespace moorage::workspace {

using state_db::WorkspaceState;

WorkspaceView Archives::archive(const Caller& caller, const std::string& name,
                                const Progress& progress) {
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "archive");
  const auto writing = leases_.write(caller, found);
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  if (row.state == WorkspaceState::archived) {
    join_key(context_.store, caller, row.id.str());
  } else {
    put_away(caller, row, "archived by " + user_name(caller.uid), progress);
  }
  return views_.show(caller, row.id.str());
}

uint64_t Archives::collect(base::WorkspaceId id, const std::string& reason) {
  const auto guard = context_.locks.lock(id.str(), "collection", std::chrono::milliseconds(0));
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  const Caller collector;  // root without a lease: a held lease stops collection
  const auto writing = leases_.write(collector, row);
  if (row.policy.pinned || state_db::SandboxTable(context_.store).live(id) ||
      context_.live.mounted(id))
    throw Error(Code::conflict, row.name + " is in use again");
  const uint64_t freed = put_away(collector, row, "collected: " + reason, {});
  const auto archive = state_db::ArchiveTable(context_.store).find(id).value();
  return ArchiveStore(context_).is_elsewhere() ? freed : freed - std::min(freed, archive.bytes);
}

uint64_t Archives::put_away(const Caller& caller, const state_db::WorkspaceRow& present,
                            const std::string& reason, const Progress& progress) {
  require_ready(present);
  ArchiveStore(context_).require_writable();
  start_stop_.bring_to_rest(present, reason);
  // If its policy takes a snapshot at each stop, it is now on another layer.
  const auto row = state_db::WorkspaceTable(context_.store).get(present.id);
  return cold_storage_.put_away(row, reason, key_joiner(context_.store, caller), progress);
}

WorkspaceView Archives::unarchive(const Caller& caller, const std::string& name,
                                  const Progress& progress) {
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "unarchive");
  const auto writing = leases_.write(caller, found);
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  if (row.state == WorkspaceState::ready) {
    join_key(context_.store, caller, row.id.str());
    auto view = views_.show(caller, row.id.str());
    view.notice = row.name + " is not archived: nothing was done";
    return view;
  }
  if (row.state != WorkspaceState::archived) require_ready(row);
  if (progress) progress("unarchive", -1, row.name);
  cold_storage_.bring_back(row, key_joiner(context_.store, caller));
  return views_.show(caller, row.id.str());
}

WorkspaceView Archives::resume(const Caller& caller, const std::string& subject) {
  const auto id = base::WorkspaceId::parse(subject.substr(0, subject.find(' '))).value();
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (subject == state_db::move_under_way(id))
    refuse_unsettled(caller, "an interrupted move of " + row.name + " is being cleaned up");
  return views_.look(id);
}

}  // namespace moorage::workspace
