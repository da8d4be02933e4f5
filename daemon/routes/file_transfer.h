// Bodies that are files: an open file as an answer, a workspace file or a quarantine file as the
// target of a request body. None is held in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/os/fd.h"
#include "daemon/http/exchange.h"
#include "workspace/verbs/workspaces.h"

namespace moorage::daemon {

// The first `size` bytes of a file. `keep` stays alive during the read (a lease on the mount).
std::unique_ptr<BodySource> read_out(base::Fd file, std::shared_ptr<const void> keep,
                                     uint64_t size);

struct UploadLimits {
  uint64_t max_bytes = 0;
  std::function<void(size_t)> require_room{};  // throws if that many more bytes do not fit
};

// invalid_argument beyond max_bytes. `done` makes the reply from the file, positioned at its end.
std::unique_ptr<BodySink> fill_file(base::Fd file, UploadLimits limits,
                                    std::function<Reply(base::Fd)> done);

// Answers 200 once the file is durable under its name; before that nothing is visible. Checks the
// caller's right to write before the body, and again when the file gets its name.
std::unique_ptr<BodySink> write_workspace_file(workspace::Workspaces& workspaces,
                                               state_db::Store& store, const Request& request,
                                               const std::string& path, uint32_t mode,
                                               UploadLimits limits);

// Joins a request's key to a change of a tree, before the change. A tree has no transaction, so a
// repeat after a crash checks the tree for the change. On a full disk the change proceeds without
// this, because a change that frees space must work.
void join_to_tree(state_db::Store& store, const workspace::Caller& caller);

}  // namespace moorage::daemon
