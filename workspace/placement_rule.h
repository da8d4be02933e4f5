// A rule of the host about where whose workspaces may run and how much they may take: plain data,
// as the configuration's `policy:` has it. What it means is in placement.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace moorage::workspace {

struct PlacementLimits {  // what is unset is not spoken of
  std::optional<uint64_t> memory_bytes{};
  std::optional<double> cpus{};
  std::optional<uint32_t> pids{};
  std::optional<uint64_t> disk_bytes{};
};

struct PlacementRule {
  std::string name{};  // "policy rule 2 (/etc/moorage/moorage.yaml:14)"
  std::string text{};  // as the file has it
  // For whose workspaces. Empty: for all.
  std::vector<uint32_t> users{};   // their owners
  std::vector<uint32_t> groups{};  // any of the owner's
  std::map<std::string, std::string> labels{};
  // What it says of them. Empty, unset: nothing.
  std::vector<std::string> backends{};
  std::optional<backends::Isolation> min_isolation{};
  std::string default_backend{};
  std::string default_runtime{};  // of that backend
  std::string default_image{};
  PlacementLimits usual{};  // of new ones that name none
  PlacementLimits most{};
};

}  // namespace moorage::workspace
