#include "packs/tar_entry.h"

namespace moorage::packs {

// Each field is preceded by its length, so that two different entries never give the same text.
void EntryDigest::begin(const ArchiveEntry& entry) {
  digest_.restart();
  position_ = 0;
  std::string text;
  const auto add = [&text](std::string_view part) {
    text += std::to_string(part.size()) + ":";
    text += part;
  };
  add(entry.path);
  for (const int64_t number :
       {static_cast<int64_t>(entry.type), static_cast<int64_t>(entry.mode),
        static_cast<int64_t>(entry.uid), static_cast<int64_t>(entry.gid), entry.mtime.tv_sec,
        static_cast<int64_t>(entry.mtime.tv_nsec), static_cast<int64_t>(entry.size),
        static_cast<int64_t>(entry.opaque)}) {
    add(std::to_string(number));
  }
  add(entry.target);
  for (const auto& [name, value] : entry.attributes) {
    add(name);
    add(value);
  }
  digest_.add(text);
}

void EntryDigest::add(uint64_t offset, std::string_view bytes) {
  if (bytes.empty()) return;
  if (offset != position_) digest_.add("hole to " + std::to_string(offset) + "\n");
  digest_.add(bytes);
  position_ = offset + bytes.size();
}

}  // namespace moorage::packs
