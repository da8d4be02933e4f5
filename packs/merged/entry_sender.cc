#include "packs/merged/entry_sender.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/log.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "layers/change_time.h"
#include "packs/attributes.h"

namespace moorage::packs {
namespace {

using Outcome = SentResult::Outcome;

constexpr size_t kBufferBytes = 256 << 10;
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr size_t kMaxValueBytes = 64 << 10;  // of an attribute
constexpr std::string_view kOverlayPrefix = "user.overlay.";
constexpr uint32_t kExecutable = 0111;
constexpr const char* kCapability = "security.capability";

// The root of a user namespace sees its own capabilities in the form without a root id.
std::string with_inside_root(const std::string& value) {
  if (value.size() != sizeof(vfs_cap_data)) return {};
  const auto magic = base::number_at<uint32_t>(value.data());
  if ((magic & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_2) return {};
  std::string moved = value;
  base::put_number(moved.data(), (magic & ~uint32_t{VFS_CAP_REVISION_MASK}) | VFS_CAP_REVISION_3);
  base::append_number(moved, uint32_t{0});
  return moved;
}

bool inside_id(uint32_t& id, const InsideOwners& owners) {
  if (owners.only) {
    id = *owners.only;
    return true;
  }
  id -= owners.first_id;
  return id < owners.ids;
}

Node link_to(Node node, const std::string& first) {
  node.type = NodeType::hard_link;
  node.target = first;
  node.size = 0;
  node.attributes.clear();
  return node;
}

}  // namespace

bool is_gone(int error_number) {
  return error_number == ENOENT || error_number == ELOOP || error_number == ENOTDIR ||
         error_number == ENXIO || error_number == EXDEV || error_number == ESTALE;
}

EntrySender::EntrySender(const MergedFinder::Pack& pack, std::function<void()> check_stopping,
                         FoundChanges& found)
    : pack_(pack),
      check_stopping_(std::move(check_stopping)),
      found_(found),
      buffer_(kBufferBytes) {}

void EntrySender::removal(const std::string& path) {
  forget_links(path);
  if (pack_) pack_().removal(path);
  ++found_.removals;
}

// Opens a file for reading and anything else by O_PATH, as `source.status` suggests; fills in the
// status of the opened one. Empty with errno.
Fd EntrySender::open(const EntrySource& source, struct stat& status) {
  const bool file = S_ISREG(source.status.st_mode);
  const bool directory = S_ISDIR(source.status.st_mode);
  int flags = directory ? O_RDONLY | O_DIRECTORY : O_PATH;
  if (file) flags = O_RDONLY | O_NOATIME;
  Fd fd = base::try_open_beneath(source.directory, source.name, flags);
  if (!fd && errno == EPERM && file)  // O_NOATIME needs the owner
    fd = base::try_open_beneath(source.directory, source.name, O_RDONLY);
  if (!fd) return fd;
  base::check(fstat(fd.get(), &status), "inspect an entry");
  if ((status.st_mode & S_IFMT) == (source.status.st_mode & S_IFMT)) return fd;
  errno = ENOENT;
  return {};
}

void EntrySender::read_attributes_of(Node& node, const EntrySource& source, int fd) {
  node.attributes = read_attributes(fd, source.owners.first_id);
  std::erase_if(node.attributes,
                [](const auto& one) { return one.first.starts_with(kOverlayPrefix); });
  if (source.owners.first_id == 0 && node.type == NodeType::file && (node.mode & kExecutable)) {
    const auto value = base::read_attribute(fd, kCapability);
    std::string moved = value ? with_inside_root(*value) : "";
    if (!moved.empty()) node.attributes[kCapability] = std::move(moved);
  }
  size_t bytes = 0;
  const size_t before = node.attributes.size();
  for (auto one = node.attributes.begin(); one != node.attributes.end();) {
    const size_t size = one->first.size() + one->second.size();
    const bool fits =
        one->second.size() <= kMaxValueBytes && bytes + size <= kMaxFileAttributesBytes;
    bytes += fits ? size : 0;
    one = fits ? std::next(one) : node.attributes.erase(one);
  }
  if (node.attributes.size() != before) ++found_.cut;
}

std::optional<Node> EntrySender::read_node(const EntrySource& source, int fd,
                                           const struct stat& status) {
  Node node = layers::node_of(status, source.path);
  if (!inside_id(node.uid, source.owners) || !inside_id(node.gid, source.owners))
    return std::nullopt;
  node.device = 0;
  if (node.type == NodeType::symlink) {
    node.target = layers::read_link(fd);
  } else if (node.type == NodeType::file || node.type == NodeType::directory) {
    read_attributes_of(node, source, fd);
  }
  return node;
}

template <typename Use>
void EntrySender::read_data(int file, const struct stat& status, const Use& use) {
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0) return;
  const bool full = size <= kSmallBytes && static_cast<uint64_t>(status.st_blocks) * 512 >= size;
  auto data = full ? std::optional(layers::Extent{0, size}) : layers::next_data(file, 0, size);
  while (data) {
    const uint64_t end = data->offset + data->bytes;
    for (uint64_t at = data->offset; at < end;) {
      if (check_stopping_) check_stopping_();
      const ssize_t count =
          pread(file, buffer_.data(), std::min<uint64_t>(buffer_.size(), end - at),
                static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (base::check(count, "read a file") == 0) return;  // became shorter
      use(at, std::string_view(buffer_.data(), static_cast<size_t>(count)));
      at += static_cast<uint64_t>(count);
    }
    if (end >= size) return;
    data = layers::next_data(file, end, size);
  }
}

std::string EntrySender::digest_of(const Node& node, int fd, const struct stat& status) {
  MergedDigest digest(node);
  if (node.type == NodeType::file)
    read_data(fd, status, [&](uint64_t at, std::string_view bytes) { digest.add(at, bytes); });
  return digest.str();
}

bool EntrySender::lost_link(const std::string& path, size_t layer,
                            const struct stat& status) const {
  if (status.st_nlink < 2 || S_ISDIR(status.st_mode) || links_.empty()) return false;
  const auto found = links_.find({layer, status.st_dev, status.st_ino});
  return found != links_.end() && found->second.path != path && !linked_.contains(path);
}

// The receiver has something else at this path from now on.
void EntrySender::forget_links(const std::string& path) {
  if (link_keys_.empty()) return;
  // '0' is the character after '/'.
  const std::array<std::pair<std::string, std::string>, 2> ranges{
      {{path, path + '\0'}, {path + "/", path + "0"}}};
  for (const auto& [from, to] : ranges) {
    const auto last = link_keys_.lower_bound(to);
    const auto first = link_keys_.lower_bound(from);
    for (auto one = first; one != last; ++one) links_.erase(one->second);
    link_keys_.erase(first, last);
    linked_.erase(linked_.lower_bound(from), linked_.lower_bound(to));
  }
}

// Another name of this file, already sent in the same state.
std::optional<std::string> EntrySender::first_name(const EntrySource& source, SentResult& result) {
  const bool directory = S_ISDIR(source.status.st_mode);
  const bool linked = source.layer && !directory && source.status.st_nlink > 1;
  if (!linked) {
    if (!directory) forget_links(source.path);
    return std::nullopt;
  }
  const LinkKey key{*source.layer, source.status.st_dev, source.status.st_ino};
  const int64_t changed_ns = layers::nanoseconds(source.status.st_ctim);
  const auto found = links_.find(key);
  const bool other_name = found != links_.end() && found->second.path != source.path;
  if (found != links_.end() && found->second.changed_ns == changed_ns) {
    std::string first = found->second.path;
    if (other_name) {
      forget_links(source.path);
      linked_[source.path] = key;
      return first;
    }
    // Sent in this round already; again, it would lose its other names.
    if (!source.forced && source.known_digest.empty()) result.outcome = Outcome::unchanged;
    if (result.outcome == Outcome::unchanged) return std::nullopt;
  }
  result.unsure_link = other_name;
  const bool again = found != links_.end();
  if (other_name) forget_links(std::string(found->second.path));
  forget_links(source.path);
  if (again) std::erase_if(linked_, [&](const auto& link) { return link.second == key; });
  if (links_.size() < kMaxLinkedFiles) {
    links_[key] = {source.path, changed_ns};
    link_keys_[source.path] = key;
  }
  return std::nullopt;
}

SentResult EntrySender::send(const EntrySource& source, const std::function<void()>& before) {
  SentResult result;
  struct stat status {};
  const Fd fd = open(source, status);
  if (!fd) {
    if (is_gone(errno)) return result;
    if (errno != EACCES && errno != EPERM)
      base::throw_errno("open " + base::escape_for_message(source.path));
    ++found_.unreadable;
    result.outcome = Outcome::skipped;
    return result;
  }
  const std::optional<Node> node = read_node(source, fd.get(), status);
  if (!node) {
    ++found_.skipped;
    result.outcome = Outcome::skipped;
    return result;
  }
  if (!source.known_digest.empty()) {
    result.digest = digest_of(*node, fd.get(), status);
    result.outcome = Outcome::unchanged;
    if (result.digest == source.known_digest) return result;
  }
  result.outcome = Outcome::sent;
  const auto first = first_name(source, result);
  if (source.muted || result.outcome == Outcome::unchanged) return result;
  before();
  ++found_.entries;
  if (pack_ && !first && node->type == NodeType::file) {
    send_file(*node, fd.get(), status, source.wants_digest ? &result.digest : nullptr);
    return result;
  }
  if (pack_) pack_().entry(first ? link_to(*node, *first) : *node);
  if (source.wants_digest) result.digest = digest_of(*node, fd.get(), status);
  return result;
}

void EntrySender::send_file(const Node& node, int file, const struct stat& status,
                            std::string* digest) {
  PackWriter& pack = pack_();
  std::optional<MergedDigest> reading;
  if (digest != nullptr) reading.emplace(node);
  pack.entry(node);
  read_data(file, status, [&](uint64_t at, std::string_view bytes) {
    if (reading) reading->add(at, bytes);
    found_.bytes += bytes.size();
    pack.piece(at, bytes);
  });
  pack.end_pieces();
  if (reading) *digest = reading->str();
}

}  // namespace moorage::packs
