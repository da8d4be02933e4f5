// Names of users and groups from /etc/passwd and /etc/group. Parsed here: getpwuid and getgrgid
// would load the name service, and this program is static. Accounts of other sources have no name.
#pragma once

#include <sys/types.h>

#include <string>

namespace moorage::cli {

std::string user_name(int64_t uid);  // "alice"; "uid 1004" when it has no name
std::string group_name(gid_t gid);   // "devs"; "1004" when it has no name

}  // namespace moorage::cli
