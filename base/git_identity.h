// A person's name or address in a commit. It comes from clients and files, and is shown to others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moorage::base {

inline constexpr size_t kMaxGitIdentity = 200;  // bytes

struct GitIdentity {
  std::string name;
  std::string email;
};

// UTF-8 of at most kMaxGitIdentity bytes without control characters, < and >, and with something
// that git keeps: it removes some marks at both ends, and refuses an empty rest.
bool is_git_identity(std::string_view text);

}  // namespace moorage::base
