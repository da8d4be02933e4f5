// A rule of the host: where whose workspaces may run and how much they may use. Plain data from the
// configuration's `policy:`; workspace/access/placement.h gives its meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace moorage::workspace {

struct PlacementLimits {  // an unset limit is left alone
  std::optional<uint64_t> memory_bytes{};
  std::optional<double> cpus{};
  std::optional<uint32_t> pids{};
  std::optional<uint64_t> disk_bytes{};
};

struct PlacementRule {
  std::string name{};  // "policy rule 2 (/etc/moorage/moorage.yaml:14)"
  std::string text{};  // as in the file
  // Whose workspaces it applies to. Empty: all.
  std::vector<uint32_t> users{};   // their owners
  std::vector<uint32_t> groups{};  // any of the owner's
  std::map<std::string, std::string> labels{};
  // What it requires. Empty or unset: nothing.
  std::vector<std::string> backends{};
  std::optional<backends::Isolation> min_isolation{};
  std::string default_backend{};
  std::string default_runtime{};  // of that backend
  std::string default_image{};
  PlacementLimits usual{};  // for new workspaces that name none
  PlacementLimits most{};
};

}  // namespace moorage::workspace
