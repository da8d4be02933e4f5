#include "packs/merged/upper_index.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/os/open_beneath.h"
#include "packs/merged/sent_list.h"

namespace moorage::packs {
namespace {

using layers::NameLookup;
using layers::UpperNode;

// Names in the directories on the walk's path; each gets some room.
constexpr uint64_t kNamesBytes = 12 << 20;
constexpr uint64_t kLeastPiece = 16 << 10;
constexpr uint64_t kMostPiece = 3 << 20;

}  // namespace

std::vector<IndexDirectory> UpperIndex::root() const {
  std::vector<IndexDirectory> root;
  for (size_t layer = 0; layer < uppers_.size(); ++layer) {
    const bool marked = layers::has_marked_whiteouts(uppers_[layer], marks_);
    root.push_back({layer, base::open_directory_beneath(uppers_[layer], ""), marked});
  }
  return root;
}

std::optional<IndexedName> UpperIndex::find(const std::vector<IndexDirectory>& here,
                                            const std::string& name) const {
  IndexedName found;
  NameLookup lookup(name);
  bool first = true;
  const auto take = [&](UpperNode& node, NameLookup::Part part, size_t layer) {
    if (part == NameLookup::Part::nothing) return;
    if (std::exchange(first, false)) {
      found.kind = node.kind;
      found.status = node.status;
      found.layer = layer;
    }
    if (part != NameLookup::Part::directory) return;
    const bool marked = layers::has_marked_whiteouts(node.directory.get(), marks_);
    found.directories.push_back({layer, std::move(node.directory), marked});
  };
  for (size_t layer = 0; layer < uppers_.size() && !lookup.stopped(); ++layer) {
    if (lookup.from_root()) {
      auto there = layers::search_from_root(uppers_[layer], lookup, marks_);
      take(there.node, there.part, layer);
      continue;
    }
    const auto level = std::find_if(here.begin(), here.end(),
                                    [layer](const auto& one) { return one.layer == layer; });
    if (level == here.end()) continue;
    UpperNode node =
        layers::find_upper_node(level->fd.get(), lookup.target(), level->marked_whiteouts, marks_);
    const auto part = lookup.take(node);
    take(node, part, layer);
  }
  if (!lookup.seen()) return std::nullopt;
  found.whole =
      found.kind == layers::EntryKind::directory && (lookup.stopped() || lookup.target() != name);
  return found;
}

NameWalk::~NameWalk() {
  for (const Source& source : sources_) names_bytes_ -= source.counted;
}

void NameWalk::add(int directory) {
  sources_.push_back({directory, {}, {}, 0});
  advance(sources_.back());
}

void NameWalk::advance(Source& source) {
  do {
    names_bytes_ -= std::exchange(source.counted, 0);
    const uint64_t room = kNamesBytes - std::min(kNamesBytes, names_bytes_);
    try {
      source.next =
          source.names.next(source.directory, std::clamp(room / 3, kLeastPiece, kMostPiece));
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
      source.next.reset();  // the directory was removed after it was opened
    }
    names_bytes_ += source.counted = source.names.bytes();
    if (source.next != kWalkedLast) return;
    has_last_ = true;
  } while (true);
}

std::optional<std::string> NameWalk::next() {
  std::optional<std::string> least;
  for (const Source& source : sources_) {
    if (source.next && (!least || *source.next < *least)) least = source.next;
  }
  if (!least) {
    if (std::exchange(has_last_, false)) return std::string(kWalkedLast);
    return std::nullopt;
  }
  for (Source& source : sources_) {
    // A listing may repeat a name while its directory changes.
    while (source.next && *source.next <= *least) advance(source);
  }
  return least;
}

}  // namespace moorage::packs
