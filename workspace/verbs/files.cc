#include "workspace/verbs/files.h"

#include <set>

#include "layers/inside_path.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/repositories.h"
#include "workspace/archive/store.h"
#include "workspace/context/checks.h"
#include "workspace/context/free_space.h"
#include "workspace/remote/at_rest.h"

namespace moorage::workspace {
namespace {

constexpr std::chrono::minutes kPackDeadline{60};

std::vector<layers::InsideRoot> roots_of(const SharedMounts& mounted) {
  return {{layers::kTreePlace, mounted.mounts.tree.get()},
          {layers::kHomePlace, mounted.mounts.home.get()}};
}

// Absolute inside. A change follows a link at the end of a path or replaces it: both are meant.
std::vector<std::string> without_links(const std::vector<layers::InsideRoot>& roots,
                                       const std::vector<std::string>& paths) {
  std::set<std::string> found;
  for (const std::string& path : paths) {
    for (const bool follows : {false, true})
      found.insert(layers::inside_path(roots, layers::find_inside(roots, path, follows)));
  }
  return {found.begin(), found.end()};
}

}  // namespace

FilesLease Files::open(const Caller& caller, const std::string& name, Right right) {
  const auto row = find_workspace(context_.store, caller, name, right);
  if (asks_lease(right)) leases_.check(caller, row);
  auto use = context_.live.use(row.id);
  if (right == Right::read) add_notice(caller, remote_.refresh(row.id));
  auto mounted = mounts(row, right);
  const auto roots = roots_of(*mounted);
  const layers::UploadNotes notes{context_.options.uploads(), row.id.str()};
  return {mounted, layers::TreeFiles(roots, mounted->user_host_id, notes), row, std::move(use)};
}

FileChange Files::change(const Caller& caller, const FilesLease& lease,
                         const std::vector<std::string>& paths) {
  const auto id = lease.row.id;
  auto alone = context_.locks.lock(id.str() + " files", "changing its files");
  FileChange change{std::move(alone), leases_.write(caller, lease.row), {}, {}};
  const auto running = context_.live.without_mounts(id);
  if (!running) require_at_rest(context_, id);
  if (!running || !running->remote) return change;
  change.paths = without_links(roots_of(*lease.mounted), paths);
  change.remote = remote_.begin(id, change.paths);
  return change;
}

base::Fd Files::objects(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  require_ready(row);
  require_room(context_.options, "the objects of " + row.name + " cannot be packed",
               state_db::RepositoryTable(context_.store).get(row.repository).bytes);
  base::Fd pack = ArchiveStore::spool(context_.options.store);
  context_.repos.export_pack(repo_directory(row.repository), row.base_commit, pack.get(),
                             kPackDeadline);
  return pack;
}

void Files::finish(FileChange change) { remote_.finish(std::move(change.remote), change.paths); }

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
