// What tests see of a sandbox on another machine from outside: those machines of the suite run on
// this host, so their files, processes and control groups are seen here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engines.h"

namespace moorage::tests {

// Lines: what is left there of sandboxes whose names begin with `prefix`. Programs and base trees
// may stay on a host, for the next sandbox; of a provider's machine nothing.
std::string traces_there(const Engine& engine, const std::string& prefix);

// The pids of the processes that serve this sandbox there.
std::vector<pid_t> servers_there(const std::string& sandbox);

// The control group of the processes with this pid namespace ("pid:[4026532200]"), by its name.
std::string group_there(const std::string& pid_namespace);

struct Use {
  uint64_t memory_bytes = 0;
  uint64_t processes = 0;
};
// Of the control group of this name, wherever it is.
Use use_of_group(const std::string& name);

}  // namespace moorage::tests
