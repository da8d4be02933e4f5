// Settings remote.*, and the section `backends`: machines elsewhere that sandboxes may run on. The
// section exists only in the file, never in variables or --set. A provider's key is not in it:
// `key_file` names its file, or `credential` a credential of root.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace moorage::config {

struct YamlNode;

struct RemoteSettings {
  int64_t sync_interval_s = 10;
  int64_t start_deadline_s = 600;
  uint32_t user_hours_a_day = 0;  // 0: no limit
};

struct SshHostSettings {
  std::string name{};         // [a-z0-9-]{1,32}, unique
  std::string destination{};  // user@host, or a Host of ssh's configuration
  std::string directory{};    // there: absolute, or "~/..."; empty: ~/.moorage
  uint32_t max_sandboxes = 8;
};

struct SshBackendSettings {
  std::string config_file{};  // for ssh -F; empty: root's own
  std::vector<SshHostSettings> hosts{};
};

// e2b or daytona.
struct ProviderSettings {
  std::string key_file{};
  std::string credential{};  // either is empty
  uint32_t max_sandboxes = 8;
  // The rest, for the driver of moorage-link: names and values are those of link/drivers/NAME.h.
  std::map<std::string, std::variant<std::string, int64_t, bool>> driver{};
};

struct RemoteBackends {
  struct Shown {
    std::string name{};   // "backends.ssh"
    std::string text{};   // as in the file, on one line
    std::string place{};  // "FILE:LINE"
  };
  std::optional<SshBackendSettings> ssh{};
  std::optional<ProviderSettings> e2b{};
  std::optional<ProviderSettings> daytona{};
  std::vector<Shown> shown{};
};

// Refuses with file, line and column. `file` is for messages.
RemoteBackends read_remote_backends(const std::string& file, const YamlNode& section);

}  // namespace moorage::config
