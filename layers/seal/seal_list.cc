#include "layers/seal/seal_list.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::layers {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kHashBytes = kSealListMarkBytes - 2;

size_t part_of(std::string_view path) {
  const std::string_view part = path.substr(0, path.find('/'));
  return static_cast<size_t>(std::find(kSealedParts.begin(), kSealedParts.end(), part) -
                             kSealedParts.begin());
}

// In walk order: a directory's contents come before names that begin with its own name, so a slash
// sorts before every other byte.
bool precedes(std::string_view one, std::string_view other) {
  const size_t part = part_of(one);
  const size_t other_part = part_of(other);
  if (part != other_part) return part < other_part;
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c); };
  return std::lexicographical_compare(
      one.begin(), one.end(), other.begin(), other.end(),
      [rank](char here, char there) { return rank(here) < rank(there); });
}

std::string inside(std::string_view path) {
  constexpr std::array<std::string_view, kSealedParts.size()> kPlaces{"/workspace", "/home/user",
                                                                      ""};
  const size_t part = part_of(path);
  if (part == kSealedParts.size()) return std::string(path);
  const std::string place =
      std::string(kPlaces[part]).append(path.substr(kSealedParts[part].size()));
  return place.empty() ? "/" : place;
}

}  // namespace

void SealListWriter::add(std::string_view path, std::string_view hash) {
  pending_.append(path).push_back('\0');
  pending_.append(hash).push_back('\n');
  if (pending_.size() < kPieceBytes) return;
  file_.write(pending_);
  pending_.clear();
}

void SealListWriter::commit() {
  file_.write(pending_);
  file_.commit();
}

SealListComparison::SealListComparison(const std::string& path, size_t shown) : shown_(shown) {
  try {
    file_ = base::open_file(path, O_RDONLY);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return;
  }
  read_next();
}

void SealListComparison::add(std::string_view path, std::string_view hash) {
  while (has_entry_ && precedes(path_, path)) {
    differs(path_);  // removed
    read_next();
  }
  if (!has_entry_ || path_ != path) return differs(path);  // added
  if (hash_ != hash) differs(path);
  read_next();
}

Differences SealListComparison::finish() {
  for (; has_entry_; read_next()) differs(path_);
  return std::move(found_);
}

void SealListComparison::read_next() {
  has_entry_ = false;
  if (piece_.size() - piece_at_ < kMaxSealListEntryBytes) {
    piece_.erase(0, std::exchange(piece_at_, 0));
    const std::string more = base::read_at(file_->get(), kPieceBytes, file_at_);
    file_at_ += more.size();
    piece_ += more;
  }
  const std::string_view rest = std::string_view(piece_).substr(piece_at_);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos || rest.size() < end + kSealListMarkBytes) return;
  path_ = rest.substr(0, end);
  hash_ = rest.substr(end + 1, kHashBytes);
  piece_at_ += end + kSealListMarkBytes;
  has_entry_ = true;
}

void SealListComparison::differs(std::string_view path) {
  if (++found_.count <= shown_) found_.first.push_back(inside(path));
}

}  // namespace moorage::layers
