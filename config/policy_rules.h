// The section `policy`: rules that say where whose workspaces may run and how much they may take.
// This is how the file writes them; what they mean is workspace/placement.h. They come from the
// file alone: no variable and no --set has them. Anything unknown in one, a rule that says nothing
// and one that contradicts itself are refused with file, line and column.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moorage::config {

struct YamlNode;

struct PolicyLimits {
  std::optional<uint64_t> memory_bytes{};
  std::optional<double> cpus{};
  std::optional<uint32_t> pids{};
  std::optional<uint64_t> disk_bytes{};
  bool operator==(const PolicyLimits&) const = default;
};

struct PolicyRule {
  std::string place{};                          // "FILE:LINE"
  std::string text{};                           // as the file would have it, on one line
  std::vector<uint32_t> users{};                // owners; empty: everybody
  std::vector<uint32_t> groups{};               // any of the owner's; empty: everybody
  std::map<std::string, std::string> labels{};  // all of these; empty: any
  std::vector<std::string> backends{};          // empty: says nothing of them
  std::string min_isolation{};    // none, container, userns, gvisor, vm; empty: as above
  std::string default_backend{};  // of new workspaces that name none; empty: as above
  std::string default_runtime{};  // of that backend
  std::string default_image{};
  PolicyLimits usual{};  // `default`
  PolicyLimits most{};   // `max`
};

// The rules in their order. `file` is told in messages.
std::vector<PolicyRule> read_policy(const std::string& file, const YamlNode& section);

}  // namespace moorage::config
