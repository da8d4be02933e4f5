// SHA-256 of an entry as a pack describes it, without its path: type, mode, owners as inside, time,
// attributes, and data with the places of its holes. The finder compares it where a change time
// proves nothing; the applier computes it, so that a finder on its side sends nothing back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "layers/node.h"

namespace moorage::packs {

class MergedDigest {
 public:
  // The target of a hard link does not count.
  explicit MergedDigest(const layers::Node& entry);
  void add(uint64_t offset, std::string_view bytes);  // in order
  std::string str() const;                            // hex, 32 digits

 private:
  base::Sha256 digest_;
  uint64_t end_ = 0;  // of the data added last
};

}  // namespace moorage::packs
