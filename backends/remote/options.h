// The remote backends' part of the configuration (sections `backends` and `remote`), in plain
// structs. It holds no secrets: the key of a provider stays where it is until moorage-link reads
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/wire/link_config.h"

namespace moorage::backends {

struct SshHost {
  std::string name;         // [a-z0-9-]{1,32}, unique; the runtime of its sandboxes
  std::string destination;  // ssh's: user@host, or a Host of its configuration; never "-..."
  std::string directory;    // there, for all that we put there; empty: ~/.moorage
  uint32_t max_sandboxes = 8;
};

// Machines by an API: E2B, Daytona, or servers that speak theirs.
struct ProviderOptions {
  std::string settings;  // base::LinkConfig::settings: the text of a JSON object
  // Either is empty.
  std::string key_file;    // absolute; only moorage-link reads it
  std::string credential;  // of root
  uint32_t max_sandboxes = 8;
  bool has_volume = false;        // where base trees are kept for the next machine
  bool machines_are_vms = false;  // false: what its machines are is not known
};

struct RemoteOptions {
  std::string link_program;     // absolute path of moorage-link
  std::string outpost_program;  // absolute path of moorage-outpost; the warden is BackendOptions'
  std::string notes_directory;  // <store>/remote: see places.h
  std::vector<SshHost> ssh_hosts{};  // empty: backend ssh is not configured
  std::string ssh_config_file;       // for ssh -F; empty: root's own
  std::optional<ProviderOptions> e2b{};
  std::optional<ProviderOptions> daytona{};
  uint32_t sync_interval_s = 10;
  uint32_t start_deadline_s = 600;
  // Where the secret of that credential of root's is.
  std::function<base::LinkKey(const std::string& credential)> credential_key{};
};

}  // namespace moorage::backends
