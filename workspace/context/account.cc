#include "workspace/context/account.h"

#include <pwd.h>

#include "base/error.h"

namespace moorage::workspace {

std::vector<std::string> Account::run_as() const {
  if (uid == 0) return {};
  return {"/usr/bin/setpriv", "--reuid", std::to_string(uid), "--regid", std::to_string(gid),
          "--init-groups",    "--"};
}

Account account_of(uint32_t uid) {
  char buffer[16 << 10];
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(uid, &entry, buffer, sizeof buffer, &found);
  if (found == nullptr) {
    throw Error(Code::not_found, "this host has no user with uid " + std::to_string(uid),
                "credentials are read as the user who added them");
  }
  return {uid, found->pw_gid, found->pw_name, found->pw_dir, found->pw_shell};
}

}  // namespace moorage::workspace
