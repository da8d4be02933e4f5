#include "packs/layer_check.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "packs/attributes.h"
#include "packs/layer_to_tar.h"

namespace moorage::packs {

constexpr const char* kNotALayer = "this archive was not written by moorage";

void refuse_entry(const ArchiveEntry& entry, const std::string& why) {
  throw Error(Code::invalid_argument, "entry " + base::escape_for_message(entry.path) + " " + why,
              kNotALayer);
}

size_t LayerCheck::place(const ArchiveEntry& entry) {
  const bool directory = entry.type == NodeType::directory;
  if (open_.empty() && (entry.path != prefix_ || !directory))
    refuse_entry(entry, "comes before " + prefix_ + ", which must be the first");
  if (!open_.empty()) {
    const std::string parent = parent_of(entry.path);
    while (!open_.empty() && open_.back() != parent) open_.pop_back();
    if (open_.empty()) refuse_entry(entry, "does not follow its directory");
  }
  const size_t around = open_.size();
  if (directory && around > kMaxArchiveDepth) {
    throw Error(
        Code::invalid_argument,
        "entry " + base::escape_for_message(entry.path.substr(0, 200)) + "... is nested too deeply",
        kNotALayer);
  }
  if (entry.type == NodeType::symlink && !entry.attributes.empty())
    refuse_entry(entry, "has an attribute that links cannot have");
  if (entry.type == NodeType::hard_link && !entry.target.starts_with(prefix_ + "/"))
    refuse_entry(entry, "links to a path that does not precede it in the same layer");
  check_attributes(entry.attributes, disk_first_id_,
                   "entry " + base::escape_for_message(entry.path));
  if (directory) open_.push_back(entry.path);
  return around;
}

void LayerCheck::Content::add(const ArchiveReader::Piece& piece) {
  if (piece.offset < end_) refuse_entry(entry_, "has data out of order");
  end_ = piece.offset + piece.bytes.size();
}

void LayerDryRun::take(const ArchiveEntry& entry, ArchiveReader& reader) {
  check_.place(entry);
  names_.add(entry.path, entry.type != NodeType::directory && entry.type != NodeType::whiteout);
  if (entry.type == NodeType::hard_link) names_.add_link(entry.target);
  LayerCheck::Content content(entry);
  for (ArchiveReader::Piece piece; reader.read(piece);) content.add(piece);
}

void LayerDryRun::finish() {
  const LayerNames::Verdict verdict = names_.finish();
  if (verdict == LayerNames::Verdict::good) return;
  throw Error(Code::invalid_argument,
              verdict == LayerNames::Verdict::name_twice
                  ? "an entry of " + prefix_ + " occurs twice"
                  : "a hard link of " + prefix_ + " names a path that is not before it",
              kNotALayer);
}

}  // namespace moorage::packs
