// The bytes of a file on their way between object database and worktree, as git converts them with
// its default configuration: $Id$, line ends, encoding. Filter drivers are not run. Encodings
// outside a short list are left alone: iconv loads a module a name, and the name is a stranger's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "repo_cache/attributes.h"

namespace moorage::repo_cache {

// nullopt: the bytes are written as they are. oid: 40 hex digits of the blob, for $Id$.
std::optional<std::string> to_worktree(const Conversion& conversion, std::string_view blob,
                                       const std::string& oid);

// nullopt: the bytes go in as they are. committed: the blob that the path has now, or nothing; git
// does not touch line ends of a file that was committed with CRLF under text=auto.
std::optional<std::string> to_blob(const Conversion& conversion, std::string_view content,
                                   std::optional<std::string_view> committed);

}  // namespace moorage::repo_cache
