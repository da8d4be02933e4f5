// If-Match and If-None-Match of RFC 9110, over the contents of a file: its entity tag is
// "sha256-<64 hex digits>" of its bytes, so a client changes a file only if nobody changed it since
// that client read it. The comparison runs under the lock that serializes all changes through the
// API (workspace/verbs/files.h). A process inside the sandbox takes no lock: its writes between the
// comparison and the rename are lost, as with any two programs on one file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/http/exchange.h"
#include "layers/tree_files.h"

namespace moorage::daemon {

class Preconditions {
 public:
  explicit Preconditions(const Request& request);  // invalid_argument if malformed
  // 412 if they do not hold for the file at `path`; nothing: continue.
  std::optional<Reply> unmet(const layers::TreeFiles& files, const std::string& path) const;

 private:
  struct Tags {
    bool given = false;
    bool any = false;  // "*"
    std::vector<std::string> list;
    bool include(const std::optional<std::string>& present) const;
  };
  static Tags parse(const std::string& header, const char* name);

  Tags match_;
  Tags none_match_;
};

std::string entity_tag(const std::string& sha256_hex);  // with its quotes

}  // namespace moorage::daemon
