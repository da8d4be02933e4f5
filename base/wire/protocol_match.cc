#include <algorithm>

#include "base/wire/protocol.h"

namespace moorage::base {

std::optional<int> common_protocol(const Protocols& ours, const Protocols& theirs) {
  const int newest = std::min(ours.newest, theirs.newest);
  if (newest < std::max(ours.oldest, theirs.oldest)) return std::nullopt;
  return newest;
}

std::string to_string(const Protocols& protocols) {
  const std::string newest = std::to_string(protocols.newest);
  if (protocols.oldest == protocols.newest) return "protocol " + newest;
  return "protocols " + std::to_string(protocols.oldest) + " to " + newest;
}

}  // namespace moorage::base
