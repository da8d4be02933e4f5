#include "workspace/layer_check.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "workspace/archive_attributes.h"
#include "workspace/layer_archiver.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

constexpr size_t kSeedBytes = 16;
constexpr const char* kNotALayer = "this is no archive that moorage wrote";

std::string make_seed() {
  std::string seed(kSeedBytes, '\0');
  const ssize_t size = getrandom(seed.data(), seed.size(), 0);
  if (base::check(size, "getrandom") != static_cast<ssize_t>(seed.size()))
    throw Error(Code::io, "getrandom gave too little");
  return seed;
}

}  // namespace

void refuse_entry(const ArchiveEntry& entry, const std::string& why) {
  throw Error(Code::invalid_argument, "entry " + base::escape_for_message(entry.path) + " " + why,
              kNotALayer);
}

LayerCheck::LayerCheck(std::string prefix, uint32_t disk_first_id)
    : prefix_(std::move(prefix)), disk_first_id_(disk_first_id) {}

size_t LayerCheck::place(const ArchiveEntry& entry) {
  const bool directory = entry.type == EntryType::directory;
  if (open_.empty() && (entry.path != prefix_ || !directory))
    refuse_entry(entry, "stands where " + prefix_ + " must stand");
  if (!open_.empty()) {
    const std::string parent = parent_of(entry.path);
    while (!open_.empty() && open_.back() != parent) open_.pop_back();
    if (open_.empty()) refuse_entry(entry, "does not stand behind its directory");
  }
  const size_t around = open_.size();
  if (directory && around > kMaxArchiveDepth) {
    throw Error(
        Code::invalid_argument,
        "entry " + base::escape_for_message(entry.path.substr(0, 200)) + "... is nested too deep",
        kNotALayer);
  }
  if (entry.type == EntryType::symlink && !entry.attributes.empty())
    refuse_entry(entry, "has an attribute that no link can have");
  if (entry.type == EntryType::hard_link && !entry.target.starts_with(prefix_ + "/"))
    refuse_entry(entry, "is a link to what is not in the same layer before it");
  check_attributes(entry.attributes, disk_first_id_,
                   "entry " + base::escape_for_message(entry.path));
  if (directory) open_.push_back(entry.path);
  return around;
}

void LayerCheck::Content::add(const ArchiveReader::Piece& piece) {
  if (piece.offset < end_) refuse_entry(entry_, "has data out of order");
  end_ = piece.offset + piece.bytes.size();
}

LayerDryRun::LayerDryRun(const std::string& prefix, uint32_t disk_first_id)
    : prefix_(prefix), seed_(make_seed()), check_(prefix, disk_first_id) {}

uint64_t LayerDryRun::hash_of(const std::string& path) const {
  base::Sha256 digest;
  digest.add(seed_);
  digest.add(path);
  uint64_t hash = 0;
  std::memcpy(&hash, digest.raw().data(), sizeof hash);
  return hash;
}

void LayerDryRun::take(const ArchiveEntry& entry, ArchiveReader& reader) {
  check_.place(entry);
  const auto place = static_cast<uint32_t>(names_.size());
  const bool one_name_only =
      entry.type == EntryType::directory || entry.type == EntryType::whiteout;
  names_.push_back({hash_of(entry.path), place, !one_name_only});
  if (entry.type == EntryType::hard_link) links_.push_back({hash_of(entry.target), place, true});
  LayerCheck::Content content(entry);
  for (ArchiveReader::Piece piece; reader.read(piece);) content.add(piece);
}

void LayerDryRun::finish() {
  const auto by_path = [](const Name& one, const Name& other) { return one.path < other.path; };
  std::sort(names_.begin(), names_.end(), by_path);
  const auto twice =
      std::adjacent_find(names_.begin(), names_.end(),
                         [](const Name& one, const Name& other) { return one.path == other.path; });
  if (twice != names_.end())
    throw Error(Code::invalid_argument, "an entry of " + prefix_ + " is there twice", kNotALayer);
  for (const Name& link : links_) {
    const auto target = std::lower_bound(names_.begin(), names_.end(), link, by_path);
    const bool before = target != names_.end() && target->path == link.path &&
                        target->place < link.place && target->may_have_others;
    if (before) continue;
    throw Error(Code::invalid_argument,
                "a hard link of " + prefix_ + " names what is not there before it", kNotALayer);
  }
}

}  // namespace moorage::workspace
