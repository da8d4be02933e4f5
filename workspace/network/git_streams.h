// Carries git requests of sandboxes over ssh: starts a moorage-egress git-over-ssh as the owner of
// the key, and gives the sandbox's egress the other end of its stream. The daemon handles none of
// the bytes.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/egress_client.h"
#include "base/ids.h"
#include "base/os/fd.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/secret_reader.h"

namespace moorage::workspace {

class GitStreams {
 public:
  GitStreams(Context& context, const std::string& egress_program)
      : context_(context), program_(egress_program), secrets_(context.options) {}

  // Answers the egress at that socket, if only with a reason. Never throws.
  void give(const LiveSandbox& sandbox, const std::string& control_path,
            const backends::EgressClient::Stream& wanted);

  static constexpr size_t kMost = 16;  // of one sandbox at once

 private:
  Fd start(const LiveSandbox& sandbox, const backends::EgressClient::Stream& wanted);
  Fd count(base::SandboxId sandbox);

  Context& context_;
  const std::string program_;  // moorage-egress
  const SecretReader secrets_;
  std::mutex mutex_;
  // Pipes that end when the process at their other end does.
  std::map<base::SandboxId, std::vector<Fd>> running_;
};

}  // namespace moorage::workspace
