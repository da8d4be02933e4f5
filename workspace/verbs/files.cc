#include "workspace/verbs/files.h"

#include "state_db/store.h"
#include "state_db/tables/integrity.h"

namespace moorage::workspace {

FilesLease Files::open(const Caller& caller, const std::string& name, Right right) {
  const auto row = find_workspace(context_.store, caller, name, right);
  if (asks_lease(right)) leases_.check(caller, row);
  auto use = context_.live.use(row.id);
  auto mounted = mounts(row, right);
  const auto& [tree, home, tree_device, home_device] = mounted->mounts;
  const std::vector<layers::InsideRoot> roots{{"/workspace", tree.get()},
                                              {"/home/user", home.get()}};
  const layers::UploadNotes notes{context_.options.uploads(), row.id.str()};
  return {mounted, layers::TreeFiles(roots, mounted->user_host_id, notes), row, std::move(use)};
}

FileChange Files::change(const Caller& caller, const state_db::WorkspaceRow& row) {
  auto alone = context_.locks.lock(row.id.str() + " files", "changing its files");
  return {std::move(alone), leases_.write(caller, row)};
}

std::shared_ptr<const SharedMounts> Files::mounts(const state_db::WorkspaceRow& row, Right right) {
  if (const auto running = context_.live.running(row.id)) return running->mounted;
  const auto guard = context_.locks.lock(row.id.str(), "file access");
  if (const auto running = context_.live.running(row.id)) return running->mounted;
  layers::Chain layers;
  const auto mount = [&] {
    const uint32_t first = context_.options.disk_first_id;  // no sandbox: use the ids on disk
    layers = chains_.chain(row, Chains::Compare::sometimes);
    // No agent writes through this mount, and it serves to remove files, so it may use root's room.
    return SharedMounts{chains_.mount(layers, first, layers::MountRoom::roots),
                        first + layers::kUser, row.owner_uid};
  };
  auto mounted = context_.live.at_rest(row.id, mount, context_.options.transfer_patience);
  // Before the first byte: a seal that exists when we die must be true.
  if (asks_lease(right)) {
    state_db::IntegrityTable table(context_.store);
    if (table.get(row.id).state == state_db::IntegrityState::unknown) {
      integrity_.begin_writing(row.id);
    } else {
      table.clear_seal(row.id);
    }
  }
  return mounted;
}

}  // namespace moorage::workspace
