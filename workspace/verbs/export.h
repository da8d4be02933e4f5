// Exports a workspace to another host, as the stream of its archive. A stopped one is held until it
// is read completely, however slow the client. A running one keeps running: a snapshot taken now is
// exported, and dropped at the end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "workspace/archive/contents.h"
#include "workspace/archive/export_spools.h"
#include "workspace/snapshot/taker.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class Exports {
 public:
  Exports(Context& context, Repositories& repositories, SnapshotTaker& taker, StartStop& start_stop,
          IntegrityCheck& integrity, ExportSpools& spools)
      : context_(context),
        repositories_(repositories),
        taker_(taker),
        start_stop_(start_stop),
        integrity_(integrity),
        spools_(spools) {}

  struct Export {
    std::shared_ptr<base::ByteSpool> stream;
    size_t snapshots = 0;  // number in the archive
    std::string image;     // needed by its sandboxes
    ManifestImage identity;
  };
  Export begin(const Caller& caller, const std::string& name, WithSnapshots with);

 private:
  // The source of an export, with the locks that keep it unchanged.
  struct Source;
  Source hold(const state_db::WorkspaceRow& row, base::KeyedMutex::Guard guard, WithSnapshots with);
  void write_export(const Source& source, base::ByteSpool& spool);
  void release(Source& source);

  Context& context_;
  Repositories& repositories_;
  SnapshotTaker& taker_;
  StartStop& start_stop_;
  IntegrityCheck& integrity_;
  ExportSpools& spools_;
  // Four threads, 16 more wait. Last: waits for the exports, which end with their streams.
  base::ThreadPool exporters_{4, 16};
};

}  // namespace moorage::workspace
