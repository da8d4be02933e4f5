// Runs moorage-link for an errand without a keeper: `list`, `remove` and `salvage`.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/wire/link_config.h"

namespace moorage::backends {

// What ssh(1) needs to find root's keys, agent and configuration.
std::map<std::string, std::string> ssh_environment();

// Its standard output. `command` includes arguments of its own. Throws unavailable with what the
// program said, deadline_exceeded.
std::string run_link(const std::string& program, const std::vector<std::string>& command,
                     const base::LinkConfig& config, std::chrono::milliseconds deadline);

// Names of sandboxes in the output of `list` that begin with `prefix`. The lines come from another
// machine: anything else is left out. Throws corrupted for more than 10,000.
std::vector<std::string> parse_listed(const std::string& output, const std::string& prefix);

// Whether `salvage` found the sandbox. Throws corrupted.
bool parse_found(const std::string& output);

}  // namespace moorage::backends
