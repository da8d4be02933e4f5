// Verbs that move a workspace to and from cold storage, or to another host: archive, unarchive,
// export, import. Only a stopped workspace is archived: a busy or leased one is refused, an idle
// sandbox is stopped first. The hot copy is removed only after the archive was read back from its
// disk and compared, and the archive only after the hot copy is synced and `ready`. So at least one
// of the two is always complete, and the row says which. Journals stay in the store (for history
// and logs), and are also in the archive. settle_archive (workspace/archive/store.h) cleans up
// after a crash.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/byte_pipe.h"
#include "base/thread_pool.h"
#include "workspace/archive/archived_layers.h"
#include "workspace/archive/export_spools.h"
#include "workspace/archive/store.h"
#include "workspace/verbs/workspaces.h"

namespace moorage::workspace {

class Archives {
 public:
  // Workspaces calls back here when an exec or a start needs an archived one.
  Archives(Context& context, Repositories& repositories, Workspaces& workspaces,
           LiveSandboxes& active);
  ~Archives();  // waits for running exports and imports, which end with their streams

  // Takes a snapshot of a running workspace for its export: set once, before the first verb. Called
  // with the lock held.
  using LiveSnapshot = std::function<state_db::SnapshotRow(const state_db::WorkspaceRow&)>;
  void set_live_snapshot(LiveSnapshot take) { live_snapshot_ = std::move(take); }

  WorkspaceView archive(const Caller& caller, const std::string& name, const Progress& progress);
  WorkspaceView unarchive(const Caller& caller, const std::string& name, const Progress& progress);
  // Continues the move that a key joined before the daemon died (workspace/access/keyed_request.h).
  WorkspaceView resume(const Caller& caller, const std::string& subject);

  // For collection: archives an idle workspace and returns the bytes freed in the store. Conflict
  // if it is in use or locked by a verb.
  uint64_t collect(base::WorkspaceId id, const std::string& reason);

  // A stream of the archive; throws at once if that is impossible. A stopped workspace is held
  // until it is read completely, however slow the client. A running one keeps running: a snapshot
  // taken now is exported, and dropped at the end.
  struct Export {
    std::shared_ptr<base::ByteSpool> stream;
    size_t snapshots = 0;  // number in the archive
    std::string image;     // needed by its sandboxes
    ManifestImage identity;
  };
  Export begin_export(const Caller& caller, const std::string& name, WithSnapshots with);

  // Imports an archive written into the pipe as a new workspace of the caller.
  struct Import {
    std::shared_ptr<base::BytePipe> pipe;
    WorkspaceView wait();  // after closing the pipe: returns the workspace or throws
    struct Outcome;
    std::shared_ptr<Outcome> outcome;
  };
  Import begin_import(const Caller& caller, const std::string& name);
  ExportSpools& exports() { return exports_; }
  // The result of a request with the same key before the daemon died or its client left.
  WorkspaceView resume_import(const Caller& caller, base::WorkspaceId id);

 private:
  // Caller holds the lock. Joins the key of `caller` to the return.
  void bring_back(const Caller& caller, const state_db::WorkspaceRow& row);
  ArchiveContents contents_of(const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                              const std::string& spool);
  ManifestImage identify_image(const state_db::WorkspaceRow& row);
  // The source of an export, with the locks that keep it unchanged.
  struct Source;
  Source hold(const state_db::WorkspaceRow& row, base::KeyedMutex::Guard guard, WithSnapshots with);
  void write_export(const Source& source, base::ByteSpool& spool);
  void release(Source& source);
  std::optional<SpooledFile> cut_short(state_db::ExecRow& row, const std::string& path,
                                       const std::string& spool);
  SpooledFile spool_execs(base::WorkspaceId id, const std::string& spool,
                          ArchiveContents& contents);
  // Archives a ready one under its lock, and joins the key of `caller`. Returns the bytes of layers
  // that were freed.
  uint64_t put_away(const Caller& caller, const state_db::WorkspaceRow& present,
                    const std::string& reason, const Progress& progress);
  uint64_t likely_bytes(const state_db::WorkspaceRow& row);
  std::shared_ptr<void> count_import(uint32_t uid);
  WorkspaceView take_in(const Caller& caller, const std::string& name, packs::ByteSource source);

  Context& context_;
  Repositories& repositories_;
  Workspaces& workspaces_;
  LiveSandboxes& active_;
  IntegrityCheck integrity_;
  LiveSnapshot live_snapshot_;
  std::mutex imports_mutex_;
  std::map<uint32_t, size_t> imports_;  // running ones, by user
  ExportSpools exports_;
  base::ThreadPool exporters_;
  base::ThreadPool importers_;
};

}  // namespace moorage::workspace
