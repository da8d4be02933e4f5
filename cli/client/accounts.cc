#include "cli/client/accounts.h"

#include <map>
#include <sstream>

#include "base/os/files.h"

namespace moorage::cli {
namespace {

using Names = std::map<std::string, std::string>;  // id -> name

Names read_names(const char* path) {
  Names names;
  std::istringstream lines(base::read_file_if_exists(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string id = line.substr(second + 1, line.find(':', second + 1) - second - 1);
    names.emplace(id, line.substr(0, first));  // the first entry of an id wins
  }
  return names;
}

std::string name_in(const Names& names, const std::string& id, const std::string& fallback) {
  const auto found = names.find(id);
  return found == names.end() ? fallback : found->second;
}

}  // namespace

std::string user_name(int64_t uid) {
  static const Names names = read_names("/etc/passwd");
  return name_in(names, std::to_string(uid), "uid " + std::to_string(uid));
}

std::string group_name(gid_t gid) {
  return name_in(read_names("/etc/group"), std::to_string(gid), std::to_string(gid));
}

}  // namespace moorage::cli
