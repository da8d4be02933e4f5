#include "base/wire/workspace_path.h"

#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"

namespace moorage::base {

std::string workspace_path(std::string_view typed) {
  constexpr std::string_view kWorkspace = "/workspace";
  std::string_view rest = typed;
  if (rest == kWorkspace || rest.starts_with(std::string(kWorkspace) + "/"))
    rest.remove_prefix(kWorkspace.size());
  bool inside = rest.size() < typed.size() || !rest.starts_with('/');
  std::string path;
  for (const std::string_view part : split(rest, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") inside = false;
    if (!path.empty()) path += '/';
    path += part;
  }
  if (inside && !typed.empty()) return path;
  throw Error(Code::invalid_argument,
              "'" + escape_for_message(typed) + "' is not a path in /workspace",
              "write it like src/main.c");
}

}  // namespace moorage::base
