// A user of this host, as whom a helper of the daemon runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::workspace {

struct Account {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string name, home, shell;

  // The beginning of a command line, which runs its rest as that user. Empty for root.
  std::vector<std::string> run_as() const;
};

Account account_of(uint32_t uid);  // not_found: the host has no such user

}  // namespace moorage::workspace
