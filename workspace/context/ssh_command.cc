#include "workspace/context/ssh_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "workspace/context/account.h"

namespace moorage::workspace {
namespace {

// A shell stays beside ssh: ssh closes all descriptors when it begins, and opens its key through
// the shell's. It takes only a key that nobody else could read.
constexpr const char* kSsh =
    "ssh -oBatchMode=yes -oIdentitiesOnly=yes -oIdentityAgent=none -oStrictHostKeyChecking=yes "
    "-oUpdateHostKeys=no -oConnectTimeout=20 -oPermitLocalCommand=no -oForwardAgent=no "
    "-oPasswordAuthentication=no -oControlPath=none -F \"$0\" -oIdentityFile=/proc/$$/fd/";

}  // namespace

SshCommand ssh_command(const Options& options, uint32_t owner_uid, Fd key) {
  const Account owner = account_of(owner_uid);
  base::check(fchown(key.get(), owner.uid, owner.gid), "give the key to its owner");
  base::check(fchmod(key.get(), 0600), "protect the key");
  const std::string script = kSsh + std::to_string(key.get()) + " \"$@\"; exit $?";
  const std::string config = options.ssh_config.empty() ? "none" : options.ssh_config;
  return {owner.run_as(), {"/bin/sh", "-c", script, config}, std::move(key)};
}

std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

}  // namespace moorage::workspace
