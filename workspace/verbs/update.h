// Changes the policy of a workspace, and who may use it: one commit, so a crash leaves the old
// state or the new one.
#pragma once

#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Update {
 public:
  Update(Context& context, Views& views) : context_(context), views_(views) {}

  // The view's notice names changes that only a new sandbox applies.
  WorkspaceView update(const Caller& caller, const std::string& name, const PolicyChange& change);
  WorkspaceView share(const Caller& caller, const std::string& name,
                      std::optional<uint32_t> team_gid);  // empty: private again
  // An update or a share whose daemon died after its commit: the steps after it.
  WorkspaceView resume(const std::string& subject);

 private:
  Context& context_;
  Views& views_;
};

}  // namespace moorage::workspace
