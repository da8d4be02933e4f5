// An ssh that logs in with one key, as the user of this host who owns that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

struct SshCommand {
  std::vector<std::string> as_owner;  // the beginning of a command line that runs as the owner
  std::vector<std::string> argv;      // ssh; its arguments follow
  Fd key;                             // must be inherited under its number
};
// `key`: a file in memory (SecretReader).
SshCommand ssh_command(const Options& options, uint32_t owner_uid, Fd key);

std::string shell_word(std::string_view text);  // quoted

}  // namespace moorage::workspace
