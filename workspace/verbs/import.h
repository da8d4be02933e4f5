// Imports a workspace from a stream that anybody may have written. It becomes `ready` only after
// everything is read, verified and synced; until then it is `creating`, and any failure removes it
// as such. Its repository data goes through Repositories::adopt; its files through
// packs::LayerRestorer; the rest passes the same checks as a request.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/byte_pipe.h"
#include "base/thread_pool.h"
#include "packs/tar_reader.h"
#include "workspace/access/admission.h"
#include "workspace/repositories/repositories.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Imports {
 public:
  Imports(Context& context, Repositories& repositories, Views& views, IntegrityCheck& integrity,
          Admission& admission)
      : context_(context),
        repositories_(repositories),
        views_(views),
        integrity_(integrity),
        admission_(admission) {}

  // Takes an archive written into the pipe as a new workspace of the caller.
  struct Import {
    std::shared_ptr<base::BytePipe> pipe;
    std::shared_future<WorkspaceView> made;  // once the pipe is closed
  };
  Import begin(const Caller& caller, const std::string& name);

 private:
  std::shared_ptr<void> count(uint32_t uid);
  WorkspaceView take_in(const Caller& caller, const std::string& name, packs::ByteSource source);

  Context& context_;
  Repositories& repositories_;
  Views& views_;
  IntegrityCheck& integrity_;
  Admission& admission_;
  std::mutex mutex_;
  std::map<uint32_t, size_t> running_;  // by user
  // 16 threads, as they wait for their clients, and 16 more wait. Last: waits for the imports,
  // which end with their streams.
  base::ThreadPool importers_{16, 16};
};

}  // namespace moorage::workspace
