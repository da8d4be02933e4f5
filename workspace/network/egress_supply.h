// What a moorage-egress gets from the daemon: the authority by which it ends TLS, its settings, and
// the secrets that it asks for.
#pragma once

#include <string>

#include "backends/egress_client.h"
#include "base/ids.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/secret_reader.h"
#include "workspace/network/settings.h"

namespace moorage::workspace {

class EgressSupply {
 public:
  // Writes the certificates that sandboxes show.
  EgressSupply(Context& context, const NetworkOptions& options);

  base::NetworkSettings settings_of(base::WorkspaceId workspace) const;
  // Returns the number of connections cut.
  size_t configure(const LiveSandbox& sandbox, backends::EgressClient& client,
                   const base::NetworkSettings& settings) const;
  // Answers the egress at that socket, if only with the reason why there is no secret. Never
  // throws.
  void give_secret(const LiveSandbox& sandbox, const std::string& control_path,
                   const std::string& credential) const;

 private:
  Context& context_;
  const NetworkOptions& options_;
  const SecretReader secrets_;
};

}  // namespace moorage::workspace
