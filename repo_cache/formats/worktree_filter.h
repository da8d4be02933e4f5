// Converts a file between object database and worktree like git with its default configuration:
// $Id$, line ends, encoding. Does not run filter drivers. Ignores encodings outside a short list:
// iconv loads a module by name, and the name is untrusted.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "repo_cache/formats/attributes.h"

namespace moorage::repo_cache {

// nullopt: no conversion. oid: 40 hex digits of the blob, for $Id$.
std::optional<std::string> to_worktree(const Conversion& conversion, std::string_view blob,
                                       const std::string& oid);

// Whether to_worktree() may return something. Takes no memory.
bool may_change_in_worktree(const Conversion& conversion, std::string_view blob);

// nullopt: no conversion. committed: the path's current blob, if any; git leaves line ends alone in
// a file that was committed with CRLF under text=auto.
std::optional<std::string> to_blob(const Conversion& conversion, std::string_view content,
                                   std::optional<std::string_view> committed);

}  // namespace moorage::repo_cache
