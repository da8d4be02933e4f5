// Verbs that take a workspace to where it is cold, and back, or to another host: archive,
// unarchive, export, import. To archive one it must rest: a busy one, or one that another holds, is
// refused, an idle sandbox is stopped in order. The hot copy goes only after the archive was read
// back from its disk and compared, and the archive only after the hot copy is synced and `ready`:
// so at any moment at least one of the two is whole, and the row says which. Journals stay in the
// store (history and logs go on), and are in the archive as well. What a crash leaves is settled by
// settle_archive (archive_store.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "workspace/archive_store.h"
#include "workspace/archived_layers.h"
#include "workspace/byte_pipe.h"
#include "workspace/export_spools.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

class Archives {
 public:
  // Workspaces calls back here when an exec or a start wants an archived one.
  Archives(Context& context, Repositories& repositories, Workspaces& workspaces, Active& active);
  ~Archives();  // waits for exports and imports under way, which end when their streams do

  // How a snapshot is taken of one that runs, for its export: set once, before the first verb. Its
  // caller holds the lock.
  using LiveSnapshot = std::function<state_db::SnapshotRow(const state_db::WorkspaceRow&)>;
  void set_live_snapshot(LiveSnapshot take) { live_snapshot_ = std::move(take); }

  WorkspaceView archive(const Caller& caller, const std::string& name, const Progress& progress);
  WorkspaceView unarchive(const Caller& caller, const std::string& name, const Progress& progress);
  // What either joined to its key before the daemon died (keyed_request.h).
  WorkspaceView resume(const Caller& caller, const std::string& subject);

  // For collection: archives one that rests, and tells how many bytes of the store that gave back.
  // Conflict if it is wanted, or a verb is at work on it.
  uint64_t collect(base::WorkspaceId id, const std::string& reason);

  // A stream of the archive. Throws at once if it cannot be. One at rest is held so until all of it
  // was read, which is not a matter of the client's speed. One that runs goes on: it is exported as
  // a snapshot has it that is taken now, and goes with the end of the export.
  struct Export {
    std::shared_ptr<ByteSpool> stream;
    size_t snapshots = 0;  // that are in it
    std::string image;     // that its sandboxes need
    ManifestImage identity;
  };
  Export begin_export(const Caller& caller, const std::string& name, WithSnapshots with);

  // An archive as it is written into the pipe; the workspace is the caller's, and new.
  struct Import {
    std::shared_ptr<BytePipe> pipe;
    WorkspaceView wait();  // once the pipe was closed: the workspace, or why there is none
    struct Outcome;
    std::shared_ptr<Outcome> outcome;
  };
  Import begin_import(const Caller& caller, const std::string& name);
  ExportSpools& exports() { return exports_; }
  // What one with the same key made before the daemon died, or its client left.
  WorkspaceView resume_import(const Caller& caller, base::WorkspaceId id);

 private:
  // Its caller holds the lock. The key of `caller` is joined to the return.
  void bring_back(const Caller& caller, const state_db::WorkspaceRow& row);
  ArchiveContents contents_of(const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                              const std::string& spool);
  ManifestImage identify_image(const state_db::WorkspaceRow& row);
  // What an export works on, and whatever keeps it as it is.
  struct Source;
  Source hold(const state_db::WorkspaceRow& row, base::KeyedMutex::Guard guard, WithSnapshots with);
  void write_export(const Source& source, ByteSpool& spool);
  void release(Source& source);
  std::optional<SpooledFile> cut_short(state_db::ExecRow& row, const std::string& path,
                                       const std::string& spool);
  SpooledFile spool_execs(base::WorkspaceId id, const std::string& spool,
                          ArchiveContents& contents);
  // Of a ready one, under its lock; the key of `caller` is joined to it. Bytes of its layers that
  // went.
  uint64_t put_away(const Caller& caller, const state_db::WorkspaceRow& present,
                    const std::string& reason, const Progress& progress);
  uint64_t likely_bytes(const state_db::WorkspaceRow& row);
  std::shared_ptr<void> count_import(uint32_t uid);
  WorkspaceView take_in(const Caller& caller, const std::string& name, ByteSource source);

  Context& context_;
  Repositories& repositories_;
  Workspaces& workspaces_;
  Active& active_;
  IntegrityCheck integrity_;
  LiveSnapshot live_snapshot_;
  std::mutex imports_mutex_;
  std::map<uint32_t, size_t> imports_;  // under way, by user
  ExportSpools exports_;
  base::ThreadPool exporters_;
  base::ThreadPool importers_;
};

}  // namespace moorage::workspace
