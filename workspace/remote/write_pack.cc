#include "workspace/remote/write_pack.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/os/open_beneath.h"
#include "layers/ids.h"
#include "packs/merged/applier.h"
#include "repo_cache/fsuid_threads.h"
#include "workspace/context/disk_use.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {
namespace {

// Of the disk's room: bytes written, and entries, each of which takes an inode even without data.
constexpr uint64_t kBytesBetweenChecks = 1 << 20;
constexpr uint64_t kEntriesBetweenChecks = 1024;

packs::MergedRoot root_of(const std::string& prefix, const base::Fd& directory,
                          const SharedMounts& mounted) {
  packs::MergedRoot root;
  root.prefix = prefix;
  root.merged = directory.get();
  root.owners.first_id = mounted.user_host_id - layers::kUser;
  root.owners.ids = layers::kIdsPerSandbox;
  return root;
}

}  // namespace

void write_pack(Context& context, const state_db::WorkspaceRow& row, const SharedMounts& mounted,
                base::Fd file, const std::function<void()>& check_stopping) {
  const packs::PackReader pack(std::move(file));
  pack.verify(check_stopping);
  const base::Fd tree = base::open_directory_beneath(mounted.mounts.tree.get(), "");
  const base::Fd home = base::open_directory_beneath(mounted.mounts.home.get(), "");
  // Where only the watch counts the workspace's disk use, it counts later.
  const uint64_t most_bytes = limit_of(row).bytes;
  packs::MergedApplier::Options options;
  options.roots = {root_of("tree", tree, mounted), root_of("home", home, mounted)};
  const packs::MergedApplier* applier = nullptr;
  packs::AppliedChanges checked;
  options.check_stopping = [&] {
    check_stopping();
    const uint64_t bytes = applier->applied().bytes;
    const uint64_t entries = applier->applied().entries;
    if (most_bytes > 0 && bytes > most_bytes) {
      throw Error(Code::resource_exhausted, "they are larger than the disk limit of " + row.name,
                  "raise it: moorage set " + row.name + " --disk SIZE");
    }
    if (bytes < checked.bytes + kBytesBetweenChecks &&
        entries < checked.entries + kEntriesBetweenChecks) {
      return;
    }
    checked = applier->applied();
    require_room(context.options, kTakeOver);
  };
  // The mounts show only ids of the sandbox: nobody else can create a file there.
  repo_cache::run_as_owner(options.roots.front().owners.first_id, 1, [&](unsigned) {
    packs::MergedApplier changes(options);
    applier = &changes;
    pack.read_changes(changes);
    changes.finish();
  });
}

}  // namespace moorage::workspace
