#include "packs/merged/merged_digest.h"

#include "base/little_endian.h"

namespace moorage::packs {
namespace {

void put_text(std::string& out, std::string_view text) {
  base::append_number(out, static_cast<uint64_t>(text.size()));
  out += text;
}

}  // namespace

MergedDigest::MergedDigest(const layers::Node& entry) {
  std::string facts;
  facts += static_cast<char>(entry.type);
  base::append_number(facts, entry.mode);
  base::append_number(facts, entry.uid);
  base::append_number(facts, entry.gid);
  base::append_number(facts, int64_t{entry.mtime.tv_sec});
  base::append_number(facts, static_cast<uint32_t>(entry.mtime.tv_nsec));
  base::append_number(facts, entry.size);
  put_text(facts, entry.type == layers::NodeType::symlink ? entry.target : "");
  for (const auto& [name, value] : entry.attributes) {
    put_text(facts, name);
    put_text(facts, value);
  }
  digest_.add(facts);
}

void MergedDigest::add(uint64_t offset, std::string_view bytes) {
  if (offset != end_) {
    std::string hole;
    base::append_number(hole, end_);
    base::append_number(hole, offset);
    digest_.add(hole);
  }
  digest_.add(bytes);
  end_ = offset + bytes.size();
}

std::string MergedDigest::str() const {
  constexpr size_t kBytes = 16;
  return base::to_hex(digest_.raw().substr(0, kBytes));
}

}  // namespace moorage::packs
