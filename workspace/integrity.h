// Whether a workspace is as it was left. An orderly stop seals the layer (layer_seal.h); before the
// layer is mounted again it is compared:
//
//   intact           as the seal says, or: it was running when its sandbox or the host died, and
//                    the reason tells what that may have cost
//   changed-outside  something else than Moorage wrote to it; it is used all the same, and said
//                    until the next orderly stop, or until a person accepts it
//   lost             a directory of it, or the commit that it stands on, is missing: it is not
//                    started, and nothing is put in the place of what is gone
//   needs-repair     mending it failed, or is not over yet (mender.h)
//
// Whoever of us writes to a layer at rest clears the seal before, in the database; the next rest
// takes a new one. All calls but `all` are made with the workspace's lock held.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "state_db/integrity.h"
#include "state_db/sandboxes.h"
#include "state_db/workspaces.h"
#include "workspace/context.h"
#include "workspace/layer_seal.h"

namespace moorage::workspace {

class IntegrityCheck {
 public:
  explicit IntegrityCheck(Context& context) : context_(context) {}

  // Before a mount: compares, unless that was done within `max_age`, and keeps the answer if it is
  // news. corrupted: it is lost, and why.
  void look(const state_db::WorkspaceRow& row, std::chrono::milliseconds max_age = {});
  // The same without the comparison, for those who only ask.
  void look_for_loss(const state_db::WorkspaceRow& row);
  // The base commit cannot be had; remembers it and throws corrupted.
  [[noreturn]] void lose_base(const state_db::WorkspaceRow& row, const base::Error& error);

  // In the transaction that says that a sandbox will write: the seal is void, `look` was now.
  void begin_writing(base::WorkspaceId id);
  struct Taken {
    std::optional<Seal> seal;
    std::string why_none;  // for people
  };
  Taken take(const state_db::WorkspaceRow& row);  // of a layer that nobody has mounted
  // In the transaction that says that it is at rest. Its size is known by then, too.
  void keep(const state_db::WorkspaceRow& row, const Taken& taken);
  // In the transaction that says that it came back from its archive, as it had gone into it: what
  // was said of it then is still so.
  void keep_returned(const state_db::WorkspaceRow& row, const Taken& taken);
  // In the transaction that says that the sandbox is lost.
  void set_recovered(const state_db::SandboxRow& sandbox);

 private:
  void compare(const state_db::WorkspaceRow& row, const state_db::IntegrityRow& known);
  std::string missing_part(const state_db::WorkspaceRow& row);
  [[noreturn]] void lose(const state_db::WorkspaceRow& row, const std::string& what,
                         const std::string& hint);
  std::string list_path(base::WorkspaceId id) const;

  Context& context_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, std::chrono::steady_clock::time_point> looked_;
};

}  // namespace moorage::workspace
