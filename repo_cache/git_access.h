// What shows upstream who asks, for the runs of git in one call. Secrets are in files in memory
// that git or its ssh opens by descriptor, so they are never in an argument, in a variable, or in
// this process. This layer passes them on and does not read them.
#pragma once

#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::repo_cache {

// The hint of an error that says: upstream wants to know who asks, or does not let them read.
inline constexpr const char* kPrivateHint =
    "the repository is private or does not exist; add a credential for it, a token or an ssh key: "
    "moorage credential add --help";

struct GitAccess {
  std::vector<std::string> settings;  // of git: "include.path=/proc/self/fd/9"
  std::string ssh_command;            // empty: the usual one
  std::vector<base::Fd> files;        // that these name, by number
};

}  // namespace moorage::repo_cache
