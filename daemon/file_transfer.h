// Bodies that are files: an open file as an answer, a file of a workspace or a quarantine file as
// what a request body is written to. None is ever held in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "daemon/exchange.h"
#include "workspace/workspaces.h"

namespace moorage::daemon {

// The first `size` bytes of a file. `keep` lives as long as it is read (a lease on the mount).
std::unique_ptr<BodySource> read_out(base::Fd file, std::shared_ptr<const void> keep,
                                     uint64_t size);

struct UploadLimits {
  uint64_t max_bytes = 0;
  std::function<void(size_t)> require_room{};  // throws when so many bytes more are too many
};

// invalid_argument beyond max_bytes. `done` makes the reply from the file, whose position is at its
// end.
std::unique_ptr<BodySink> fill_file(base::Fd file, UploadLimits limits,
                                    std::function<Reply(base::Fd)> done);

// Answers 200 when the file is durable under its name; before that nothing is visible. Whether the
// caller may write is asked before the body, and once more when the file gets its name.
std::unique_ptr<BodySink> write_workspace_file(workspace::Workspaces& workspaces,
                                               state_db::Store& store, const Request& request,
                                               const std::string& path, uint32_t mode,
                                               UploadLimits limits);

// Joins the key of a request to a change of a tree, before that: a tree is in no transaction, so a
// repeat after a death in between sees by the tree whether it came to it. On a full disk the change
// goes on without, as one that frees has to.
void join_to_tree(state_db::Store& store, const workspace::Caller& caller);

}  // namespace moorage::daemon
