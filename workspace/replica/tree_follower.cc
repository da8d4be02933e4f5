#include "workspace/replica/tree_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "layers/change_time.h"
#include "layers/node.h"
#include "layers/sorted_names.h"
#include "packs/attributes.h"

namespace moorage::workspace {
namespace {

using state_db::SeenEntry;

// A file sent this soon after its change may have changed again.
constexpr int64_t kSettledNs = 2'000'000'000;
constexpr uint64_t kMostPasses = 4;  // for a tree under constant writes
// A longer pass leaves as many changes for the next one, so leave those to the next round.
constexpr std::chrono::seconds kShortPass{5};
constexpr unsigned kMaxDepth = 900;  // directories; one descriptor each
constexpr size_t kMaxLinkPathBytes = 64 << 10;
constexpr size_t kPieceBytes = 1 << 20;
// Names in the directories on the walk's path; each gets some room.
constexpr uint64_t kNamesBytes = 12 << 20;
constexpr uint64_t kLeastPiece = 16 << 10;
constexpr uint64_t kMostPiece = 3 << 20;

// The entry is gone, or something else took its place a moment ago.
bool has_changed(int error_number) {
  return error_number == ENOENT || error_number == ELOOP || error_number == ENOTDIR ||
         error_number == ENXIO || error_number == EXDEV || error_number == ESTALE;
}

Fd open_entry(int directory, const std::string& name, int flags) {
  Fd fd = base::try_open_beneath(directory, name, flags);
  if (!fd && !has_changed(errno)) base::throw_errno("open " + base::escape_for_message(name));
  return fd;
}

// Reads what the kernel and overlayfs use first, then user.* up to the limit; `result` counts files
// that exceed it.
layers::Attributes raw_attributes(int fd, FollowResult& result) {
  layers::Attributes all;
  size_t bytes = 0;
  const std::vector<std::string> names = base::attribute_names(fd);
  for (const bool of_users : {false, true}) {
    for (const std::string& name : names) {
      if (!packs::is_replicated_attribute(name) || name.starts_with("user.") != of_users) continue;
      const auto value = base::read_attribute(fd, name);
      if (!value) continue;
      bytes += name.size() + value->size();
      if (bytes > packs::kMaxFileAttributesBytes) {
        ++result.cut;
        return all;
      }
      all[name] = *value;
    }
  }
  return all;
}

layers::Node read_node(const std::string& path, const struct stat& status, int fd,
                       FollowResult& result) {
  layers::Node node = layers::node_of(status, path);
  node.attributes = raw_attributes(fd, result);
  if (node.type == layers::NodeType::symlink) node.target = layers::read_link(fd);
  return node;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

std::string line_of(const SeenEntry& entry) {
  std::string line = entry.path;
  line += '\0';
  if (entry.gone) return line + "-\n";
  const bool settled = entry.looked_ns - entry.changed_ns > kSettledNs;
  return line + std::to_string(entry.inode) + " " + std::to_string(settled ? entry.changed_ns : 0) +
         " " + std::to_string(entry.size) + " " + (entry.directory ? "d" : "") +
         (entry.linked ? "l" : "") + "\n";
}

}  // namespace

void TreeRecord::end_round(const std::function<void(std::string_view line)>& sink) {
  seen_.list_round([&](const SeenEntry& entry) {
    if (entry.cleared && !entry.gone) {
      SeenEntry before;
      before.path = entry.path;
      before.gone = true;
      sink(line_of(before));
    }
    sink(line_of(entry));
  });
  seen_.end_round();
}

void TreeRecord::take(std::string_view path, std::string_view facts) {
  SeenEntry entry;
  entry.path = path;
  if (facts == "-") {
    seen_.erase(entry.path);
    seen_.erase_below(entry.path);
    return;
  }
  if (!take_number(facts, entry.inode) || !take_number(facts, entry.changed_ns) ||
      !take_number(facts, entry.size) || facts.find_first_not_of("dl") != std::string_view::npos) {
    throw Error(Code::corrupted, "the list of a pack is damaged");
  }
  entry.directory = facts.find('d') != std::string_view::npos;
  entry.linked = facts.find('l') != std::string_view::npos;
  entry.looked_ns = entry.changed_ns == 0 ? 0 : INT64_MAX;
  if (!entry.directory) {
    const auto before = seen_.find(entry.path);
    if (before && before->directory) seen_.erase_below(entry.path);
  }
  seen_.put(entry);
}

void TreeRecord::read(std::string_view part) {
  constexpr size_t kMaxLineBytes = 2 << 20;
  unread_ += part;
  size_t at = 0;
  for (;;) {
    const size_t nul = unread_.find('\0', at);
    const size_t end = nul == std::string::npos ? nul : unread_.find('\n', nul);
    if (end == std::string::npos) break;
    const std::string_view all = unread_;
    take(all.substr(at, nul - at), all.substr(nul + 1, end - nul - 1));
    at = end + 1;
  }
  unread_.erase(0, at);
  if (unread_.size() > kMaxLineBytes) throw Error(Code::corrupted, "the list of a pack is damaged");
}

void TreeRecord::end_of_list() {
  if (!unread_.empty()) throw Error(Code::corrupted, "the list of a pack is truncated");
  seen_.end_round();
}

struct TreeFollower::Directory {
  int fd;
  std::string path;
  unsigned depth;
};

FollowResult TreeFollower::follow() {
  for (uint64_t n = 0; n < kMostPasses; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    if (!pass() || std::chrono::steady_clock::now() - begin > kShortPass) break;
  }
  if (result_.changes + result_.removals > 0) {
    record_.end_round([this](std::string_view line) {
      check_stopping_();
      pack_().list(line);
    });
  }
  return result_;
}

bool TreeFollower::pass() {
  ++pass_;
  const uint64_t changes_before = result_.changes + result_.removals;
  result_.skipped = 0;
  record_.seen().start_walk();
  std::vector<FollowedTree::Root> roots = tree_.roots;
  std::sort(roots.begin(), roots.end(),
            [](const auto& one, const auto& other) { return one.prefix < other.prefix; });
  for (const auto& root : roots) {
    const Fd fd = base::open_directory(root.path);
    struct stat status {};
    base::check(fstat(fd.get(), &status), "check " + root.path);
    if (!root.prefix.empty()) {
      const auto known = arrive(root.prefix);
      if (!is_known(known ? &*known : nullptr, root.prefix, status))
        send_directory(root.prefix, fd.get(), status);
    }
    enter({fd.get(), root.prefix, 0});
  }
  while (const auto gone = record_.seen().rest()) remove(*gone);
  return result_.changes + result_.removals > changes_before;
}

// Returns the record of this path. Recorded paths before it that the walk did not meet are gone.
std::optional<TreeFollower::Seen> TreeFollower::arrive(const std::string& path) {
  while (const auto gone = record_.seen().passed_over(path)) remove(*gone);
  return record_.seen().arrive(path);
}

void TreeFollower::enter(const Directory& directory) {
  layers::SortedNames names;
  names_bytes_ += names.bytes();
  std::string last;
  bool has_last_walked = false;
  const auto next = [&]() -> std::optional<std::string> {
    check_stopping_();
    names_bytes_ -= names.bytes();
    const uint64_t room = kNamesBytes - std::min(kNamesBytes, names_bytes_);
    try {
      auto name = names.next(directory.fd, std::clamp(room / 3, kLeastPiece, kMostPiece));
      names_bytes_ += names.bytes();
      return name;
    } catch (const Error& error) {
      names_bytes_ += names.bytes();
      if (error.code() != Code::not_found) throw;
      return std::nullopt;  // removed after it was opened
    }
  };
  while (auto name = next()) {
    // A listing may repeat a name while the directory changes.
    if (*name == last) continue;
    if (*name == state_db::kWalkedLast) {
      has_last_walked = true;
    } else {
      take(directory, *name);
    }
    last = std::move(*name);
  }
  names_bytes_ -= names.bytes();
  if (has_last_walked) take(directory, std::string(state_db::kWalkedLast));
}

void TreeFollower::take(const Directory& directory, const std::string& name) {
  const std::string path = directory.path.empty() ? name : directory.path + "/" + name;
  if (tree_.wanted && !tree_.wanted(path)) return;
  const auto known = arrive(path);
  if (!visit(directory, name, path, known ? &*known : nullptr) && known) remove(*known);
}

// False: it vanished, or is not copied.
bool TreeFollower::visit(const Directory& directory, const std::string& name,
                         const std::string& path, const Seen* known) {
  struct stat now {};
  if (fstatat(directory.fd, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) < 0) {
    if (has_changed(errno)) return false;
    base::throw_errno("check " + base::escape_for_message(path));
  }
  if (!S_ISDIR(now.st_mode))
    return is_known(known, path, now) || send(directory, name, path, known, now);
  if (directory.depth >= kMaxDepth) {
    ++result_.skipped;
    return false;
  }
  const Fd fd = open_entry(directory.fd, name, O_RDONLY | O_DIRECTORY);
  if (!fd) return false;
  base::check(fstat(fd.get(), &now), "inspect a directory");
  if (!is_known(known, path, now)) send_directory(path, fd.get(), now);
  enter({fd.get(), path, directory.depth + 1});
  return true;
}

bool TreeFollower::is_known(const Seen* known, const std::string& path,
                            const struct stat& now) const {
  if (!known || known->inode != now.st_ino || known->directory != S_ISDIR(now.st_mode))
    return false;
  if (tree_.grows && S_ISREG(now.st_mode) && tree_.grows(path))
    return known->size == static_cast<uint64_t>(now.st_size);
  if (known->looked_ns == 0 || known->changed_ns != layers::nanoseconds(now.st_ctim)) return false;
  if (known->directory) return true;
  // An entry seen in this round is in doubt only if change and check have the same clock tick.
  const bool first_pass = pass_ == 1;
  if (first_pass && tree_.mapped.contains(now.st_ino)) return false;
  return known->looked_ns - known->changed_ns > (first_pass ? kSettledNs : layers::kTickNs);
}

void TreeFollower::note(const std::string& path, const struct stat& now, int64_t looked_ns) {
  Seen seen;
  seen.path = path;
  seen.inode = now.st_ino;
  seen.changed_ns = layers::nanoseconds(now.st_ctim);
  seen.looked_ns = looked_ns;
  seen.size = static_cast<uint64_t>(now.st_size);
  seen.linked = S_ISREG(now.st_mode) && now.st_nlink > 1;
  seen.directory = S_ISDIR(now.st_mode);
  record_.seen().put(seen);
  ++result_.changes;
}

void TreeFollower::send_directory(const std::string& path, int fd, const struct stat& now) {
  pack_().entry(read_node(path, now, fd, result_));
  note(path, now, INT64_MAX);
}

bool TreeFollower::send(const Directory& directory, const std::string& name,
                        const std::string& path, const Seen* known, const struct stat& now) {
  if (S_ISREG(now.st_mode)) return send_file(directory, name, path, known);
  if (layers::is_device(now)) {
    ++result_.skipped;  // a device; sandboxes cannot create any
    return false;
  }
  const Fd node = open_entry(directory.fd, name, O_PATH);
  struct stat status {};
  if (!node || fstat(node.get(), &status) < 0 ||
      (status.st_mode & S_IFMT) != (now.st_mode & S_IFMT) || layers::is_device(status)) {
    return false;
  }
  pack_().entry(read_node(path, status, node.get(), result_));
  note(path, status, INT64_MAX);  // these always get a new change time
  return true;
}

bool TreeFollower::send_file(const Directory& directory, const std::string& name,
                             const std::string& path, const Seen* known) {
  int64_t looked_ns = layers::kernel_time();
  const Fd file = open_entry(directory.fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOATIME);
  struct stat status {};
  if (!file || fstat(file.get(), &status) < 0 || !S_ISREG(status.st_mode)) return false;
  const auto size = static_cast<uint64_t>(status.st_size);
  if (tree_.grows && tree_.grows(path) && known && known->inode == status.st_ino &&
      known->size <= size) {
    pack_().growth(path);
    send_marks(file.get(), known->size);
    send_pieces(file.get(), known->size, size);
    note(path, status, INT64_MAX);
    return true;
  }
  layers::Node entry = read_node(path, status, file.get(), result_);
  const auto link = status.st_nlink > 1 ? record_.seen().find_link(status.st_ino) : std::nullopt;
  if (link && link->changed_ns == layers::nanoseconds(status.st_ctim)) {
    entry.type = layers::NodeType::hard_link;
    entry.target = link->path;
    entry.size = 0;
    pack_().entry(entry);
  } else {
    pack_().entry(entry);
    send_pieces(file.get(), 0, size);
    if (status.st_nlink > 1 && path.size() < kMaxLinkPathBytes) {
      record_.seen().put_link(status.st_ino, {path, layers::nanoseconds(status.st_ctim)});
      // The file is sent again, so its other names must become links to it: send them again in this
      // pass or the next one.
      result_.changes += record_.seen().doubt_names(status.st_ino, path);
    }
  }
  // A mapping made after the check may be gone before the next one.
  const int64_t changed_ns = layers::nanoseconds(status.st_ctim);
  const int64_t unsettled_ns =
      changed_ns + layers::kTickNs + 1;  // skip in this round, send in the next
  if (tree_.mapped.contains(status.st_ino)) {
    looked_ns = unsettled_ns;
  } else if (unsettled_ns > tree_.mapped_looked_ns) {
    looked_ns = std::min(looked_ns, unsettled_ns);
  }
  note(path, status, looked_ns);
  return true;
}

// For a journal whose middle was removed: the mark lies right before the hole, and is rewritten as
// the hole grows (base/wire/journal_middle.h).
void TreeFollower::send_marks(int file, uint64_t known_bytes) {
  constexpr uint64_t kLargestBlock = 64 << 10;
  const off_t hole = lseek(file, 0, SEEK_HOLE);
  const auto end = static_cast<uint64_t>(base::check(hole, "find a hole in a sparse file"));
  if (end < known_bytes) send_data(file, end - std::min(end, kLargestBlock), end);
}

// Sends the range up to the size at the check, without holes; later changes show in the next pass.
void TreeFollower::send_pieces(int file, uint64_t from, uint64_t size) {
  send_data(file, from, size);
  pack_().end_pieces();
}

void TreeFollower::send_data(int file, uint64_t from, uint64_t size) {
  while (const auto data = layers::next_data(file, from, size)) {
    from = data->offset + data->bytes;
    for (uint64_t at = data->offset; at < from;) {
      check_stopping_();
      const uint64_t most = std::min<uint64_t>(kPieceBytes, from - at);
      const std::string bytes = base::read_at(file, most, at);
      if (bytes.empty()) return;
      pack_().piece(at, bytes);
      at += bytes.size();
    }
  }
}

// Drops the record only, if its directory is gone or is not a directory any more.
void TreeFollower::remove(const Seen& gone) {
  const size_t slash = gone.path.rfind('/');
  const auto above =
      slash == std::string::npos ? std::nullopt : record_.seen().find(gone.path.substr(0, slash));
  if (slash != std::string::npos && (!above || !above->directory))
    return record_.seen().erase(gone.path);
  pack_().removal(gone.path);
  record_.seen().set_gone(gone.path);
  ++result_.removals;
}

}  // namespace moorage::workspace
