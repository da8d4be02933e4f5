#include "workspace/replica_follow.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/open_beneath.h"
#include "workspace/change_time.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using base::Fd;

constexpr int64_t kSettled_ns = 2'000'000'000;
constexpr uint64_t kMostPasses = 4;  // of a tree that is always being written
// One that takes longer leaves as much to the next, which is the next round's.
constexpr std::chrono::seconds kShortPass{5};
constexpr unsigned kMaxDepth = 900;  // of directories: a descriptor each
constexpr size_t kMaxLinkPathBytes = 64 << 10;
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kMaxAttributeBytes = 64 << 10;
constexpr std::string_view kLast = "objects";

// Gone, or something else than it was a moment ago.
bool has_changed(int error_number) {
  return error_number == ENOENT || error_number == ELOOP || error_number == ENOTDIR ||
         error_number == ENXIO || error_number == EXDEV || error_number == ESTALE;
}

Fd open_entry(int directory, const std::string& name, int flags) {
  Fd fd = base::try_open_beneath(directory, name, flags);
  if (!fd && !has_changed(errno)) base::throw_errno("open " + base::escape_for_message(name));
  return fd;
}

Attributes raw_attributes(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  std::string names(kMaxAttributeBytes, '\0');
  const ssize_t length = listxattr(path.c_str(), names.data(), names.size());
  if (length < 0 && errno == EOPNOTSUPP) return {};
  base::check(length, "list attributes");
  Attributes all;
  for (const char* name = names.data(); name < names.data() + length; name += strlen(name) + 1) {
    if (!is_replicated_attribute(name)) continue;
    std::string value(kMaxAttributeBytes, '\0');
    const ssize_t size = getxattr(path.c_str(), name, value.data(), value.size());
    if (size < 0 && errno == ENODATA) continue;
    value.resize(static_cast<size_t>(base::check(size, "read an attribute")));
    all[name] = std::move(value);
  }
  return all;
}

ReplicaEntry entry_of(const std::string& path, const struct stat& status, int fd) {
  ReplicaEntry entry;
  entry.path = path;
  entry.mode = status.st_mode & 07777;
  entry.uid = status.st_uid;
  entry.gid = status.st_gid;
  entry.mtime_s = status.st_mtim.tv_sec;
  entry.mtime_ns = static_cast<uint32_t>(status.st_mtim.tv_nsec);
  entry.attributes = raw_attributes(fd);
  return entry;
}

std::string read_link(int link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t length = readlinkat(link, "", target.data(), target.size());
  target.resize(static_cast<size_t>(base::check(length, "read a link")));
  return target;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

}  // namespace

bool is_replicated_attribute(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{
      "trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.whiteout",
      "security.capability",    "system.posix_acl_access",  "system.posix_acl_default"};
  return name.starts_with("user.") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// "path NUL inode time size dl LF", or "path NUL - LF".
std::string TreeRecord::line(const std::string& path, const Seen& seen) {
  const bool settled = seen.looked_ns - seen.changed_ns > kSettled_ns;
  std::string text = path;
  text += '\0';
  text += std::to_string(seen.inode) + " " + std::to_string(settled ? seen.changed_ns : 0) + " " +
          std::to_string(seen.size) + " " + (seen.directory ? "d" : "") + (seen.linked ? "l" : "") +
          "\n";
  return text;
}

std::string TreeRecord::removed_line(const std::string& path) {
  std::string text = path;
  text += '\0';
  return text + "-\n";
}

void TreeRecord::take(std::string_view path, std::string_view facts) {
  if (facts == "-") {
    const std::string gone(path);
    entries.erase(gone);
    // '0' is the character after '/'.
    entries.erase(entries.lower_bound(gone + "/"), entries.lower_bound(gone + "0"));
    return;
  }
  Seen seen;
  if (!take_number(facts, seen.inode) || !take_number(facts, seen.changed_ns) ||
      !take_number(facts, seen.size) || facts.find_first_not_of("dl") != std::string_view::npos) {
    throw Error(Code::corrupted, "the list of a pack is damaged");
  }
  seen.directory = facts.find('d') != std::string_view::npos;
  seen.linked = facts.find('l') != std::string_view::npos;
  seen.looked_ns = seen.changed_ns == 0 ? 0 : INT64_MAX;
  entries[std::string(path)] = seen;
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

void TreeRecord::end_of_list() const {
  if (!unread_.empty()) throw Error(Code::corrupted, "the list of a pack is cut");
}

struct TreeFollower::Directory {
  int fd;
  std::string path;
  unsigned depth;
};

TreeFollower::TreeFollower(const FollowedTree& tree, TreeRecord& record,
                           std::function<PackWriter&()> pack, std::function<void()> look)
    : tree_(tree), record_(record), pack_(std::move(pack)), look_(std::move(look)) {
  for (const auto& [path, seen] : record_.entries) pass_ = std::max(pass_, seen.pass);
  last_pass_ = pass_;
}

TreeFollower::~TreeFollower() = default;

FollowResult TreeFollower::follow() {
  for (uint64_t n = 0; n < kMostPasses; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    if (!pass() || std::chrono::steady_clock::now() - begin > kShortPass) break;
  }
  return result_;
}

bool TreeFollower::pass() {
  ++pass_;
  changes_before_ = result_.changes + result_.removals;
  result_.skipped = 0;
  for (const auto& root : tree_.roots) {
    const Fd fd = base::open_directory(root.path);
    struct stat status {};
    base::check(fstat(fd.get(), &status), "look at " + root.path);
    if (!root.prefix.empty()) {
      if (!is_known(root.prefix, status)) send_directory(root.prefix, fd.get(), status);
      record_.entries[root.prefix].pass = pass_;
    }
    enter({fd.get(), root.prefix, 0});
  }
  send_removals();
  return result_.changes + result_.removals > changes_before_;
}

void TreeFollower::enter(const Directory& directory) {
  look_();
  std::vector<std::string> names;
  try {
    names = base::list_directory(directory.fd);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return;  // removed since it was opened
  }
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name != kLast; });
  for (const std::string& name : names) take(directory, name);
}

void TreeFollower::take(const Directory& directory, const std::string& name) {
  const std::string path = directory.path.empty() ? name : directory.path + "/" + name;
  if (tree_.wanted && !tree_.wanted(path)) return;
  struct stat now {};
  if (fstatat(directory.fd, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) < 0) {
    if (has_changed(errno)) return;
    base::throw_errno("look at " + base::escape_for_message(path));
  }
  if (!S_ISDIR(now.st_mode)) {
    if (!is_known(path, now) && !send(directory, name, path, now)) return;
    record_.entries[path].pass = pass_;
    return;
  }
  if (directory.depth >= kMaxDepth) {
    ++result_.skipped;
    return;
  }
  const Fd fd = open_entry(directory.fd, name, O_RDONLY | O_DIRECTORY);
  if (!fd) return;
  base::check(fstat(fd.get(), &now), "look at a directory");
  if (!is_known(path, now)) send_directory(path, fd.get(), now);
  record_.entries[path].pass = pass_;
  enter({fd.get(), path, directory.depth + 1});
}

bool TreeFollower::is_known(const std::string& path, const struct stat& now) const {
  const auto found = record_.entries.find(path);
  if (found == record_.entries.end()) return false;
  const TreeRecord::Seen& seen = found->second;
  if (seen.inode != now.st_ino || seen.directory != S_ISDIR(now.st_mode)) return false;
  if (tree_.grows && S_ISREG(now.st_mode) && tree_.grows(path))
    return seen.size == static_cast<uint64_t>(now.st_size);
  if (seen.looked_ns == 0 || seen.changed_ns != nanoseconds(now.st_ctim)) return false;
  if (seen.directory) return true;
  // Within a round only what the clock cannot tell apart is in doubt.
  const bool sent_now = seen.pass > last_pass_;
  if (!sent_now && tree_.mapped.contains(now.st_ino)) return false;
  return seen.looked_ns - seen.changed_ns > (sent_now ? kTickNs : kSettled_ns);
}

void TreeFollower::note(const std::string& path, const struct stat& now, int64_t looked_ns) {
  TreeRecord::Seen& seen = record_.entries[path];
  seen = {now.st_ino,
          nanoseconds(now.st_ctim),
          looked_ns,
          static_cast<uint64_t>(now.st_size),
          S_ISREG(now.st_mode) && now.st_nlink > 1,
          S_ISDIR(now.st_mode),
          pass_};
  if (seen.linked && named_) names_[seen.inode].push_back(path);
  pack_().list(TreeRecord::line(path, seen));
  ++result_.changes;
}

void TreeFollower::send_directory(const std::string& path, int fd, const struct stat& now) {
  ReplicaEntry entry = entry_of(path, now, fd);
  entry.type = ReplicaNode::directory;
  pack_().entry(entry);
  note(path, now, INT64_MAX);
}

// False: it vanished, or is not copied.
bool TreeFollower::send(const Directory& directory, const std::string& name,
                        const std::string& path, const struct stat& now) {
  if (S_ISREG(now.st_mode)) return send_file(directory, name, path);
  const bool is_whiteout = S_ISCHR(now.st_mode) && now.st_rdev == makedev(0, 0);
  if (!S_ISLNK(now.st_mode) && !S_ISFIFO(now.st_mode) && !S_ISSOCK(now.st_mode) && !is_whiteout) {
    ++result_.skipped;  // a device: none can be made in a sandbox
    return false;
  }
  const Fd node = open_entry(directory.fd, name, O_PATH);
  struct stat status {};
  if (!node || fstat(node.get(), &status) < 0 ||
      (status.st_mode & S_IFMT) != (now.st_mode & S_IFMT)) {
    return false;
  }
  ReplicaEntry entry = entry_of(path, status, node.get());
  entry.type = S_ISLNK(now.st_mode)    ? ReplicaNode::symlink
               : S_ISFIFO(now.st_mode) ? ReplicaNode::fifo
               : S_ISSOCK(now.st_mode) ? ReplicaNode::socket
                                       : ReplicaNode::whiteout;
  if (entry.type == ReplicaNode::symlink) entry.target = read_link(node.get());
  pack_().entry(entry);
  note(path, status, INT64_MAX);  // none of these changes without another change time
  return true;
}

bool TreeFollower::send_file(const Directory& directory, const std::string& name,
                             const std::string& path) {
  int64_t looked_ns = kernel_time();
  const Fd file = open_entry(directory.fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOATIME);
  struct stat status {};
  if (!file || fstat(file.get(), &status) < 0 || !S_ISREG(status.st_mode)) return false;
  const auto size = static_cast<uint64_t>(status.st_size);
  const auto known = record_.entries.find(path);
  if (tree_.grows && tree_.grows(path) && known != record_.entries.end() &&
      known->second.inode == status.st_ino && known->second.size <= size) {
    pack_().growth(path);
    send_marks(file.get(), known->second.size);
    send_pieces(file.get(), known->second.size, size);
    note(path, status, INT64_MAX);
    return true;
  }
  ReplicaEntry entry = entry_of(path, status, file.get());
  const auto link = status.st_nlink > 1 ? links_.find(status.st_ino) : links_.end();
  if (link != links_.end() && link->second.changed_ns == nanoseconds(status.st_ctim) &&
      link->second.path != path) {
    entry.type = ReplicaNode::hard_link;
    entry.target = link->second.path;
    pack_().entry(entry);
  } else {
    entry.size = size;
    pack_().entry(entry);
    send_pieces(file.get(), 0, size);
    if (status.st_nlink > 1 && path.size() < kMaxLinkPathBytes) {
      links_[status.st_ino] = {path, nanoseconds(status.st_ctim)};
      doubt_other_names(path, status.st_ino);
    }
  }
  // A mapping that was made after the look may be gone before the next one.
  const int64_t changed_ns = nanoseconds(status.st_ctim);
  const int64_t unsettled_ns = changed_ns + kTickNs + 1;  // known in this round, sent in the next
  if (tree_.mapped.contains(status.st_ino)) {
    looked_ns = unsettled_ns;
  } else if (unsettled_ns > tree_.mapped_looked_ns) {
    looked_ns = std::min(looked_ns, unsettled_ns);
  }
  note(path, status, looked_ns);
  return true;
}

// Of a journal whose middle is gone: the mark of that lies right before the hole, and is written
// anew as the hole grows (journal_middle.h).
void TreeFollower::send_marks(int file, uint64_t known_bytes) {
  constexpr uint64_t kLargestBlock = 64 << 10;
  const off_t hole = lseek(file, 0, SEEK_HOLE);
  const auto end = static_cast<uint64_t>(base::check(hole, "find a hole"));
  if (end < known_bytes) send_data(file, end - std::min(end, kLargestBlock), end);
}

// From there on, as far as the file had been when it was looked at; what changes meanwhile shows in
// the next pass. Holes are left out.
void TreeFollower::send_pieces(int file, uint64_t from, uint64_t size) {
  send_data(file, from, size);
  pack_().end_pieces();
}

void TreeFollower::send_data(int file, uint64_t from, uint64_t size) {
  for (uint64_t at = from; at < size;) {
    const off_t data = lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    const auto begin = static_cast<uint64_t>(base::check(data, "find data of a file"));
    const off_t hole = lseek(file, data, SEEK_HOLE);
    if (hole < 0 && errno == ENXIO) break;
    const uint64_t end = std::min(static_cast<uint64_t>(base::check(hole, "find a hole")), size);
    for (at = begin; at < end;) {
      look_();
      const std::string bytes = base::read_at(file, std::min<uint64_t>(kPieceBytes, end - at), at);
      if (bytes.empty()) return;
      pack_().piece(at, bytes);
      at += bytes.size();
    }
    at = std::max(at, end);
  }
}

// The file comes anew, and its other names must be names of that: they come again, in this pass or
// the next one.
void TreeFollower::doubt_other_names(const std::string& path, ino_t inode) {
  if (!named_) {
    named_ = true;
    for (const auto& [known, seen] : record_.entries) {
      if (seen.linked) names_[seen.inode].push_back(known);
    }
  }
  const auto others = names_.find(inode);
  if (others == names_.end()) return;
  for (const auto& other : others->second) {
    const auto found = record_.entries.find(other);
    if (other != path && found != record_.entries.end() && found->second.inode == inode) {
      found->second.looked_ns = 0;
      ++result_.changes;  // so that another pass comes
    }
  }
}

void TreeFollower::send_removals() {
  std::vector<std::string> gone;
  for (const auto& [path, seen] : record_.entries) {
    if (seen.pass < pass_) gone.push_back(path);
  }
  for (const auto& path : gone) {
    const size_t slash = path.rfind('/');
    const auto above = slash == std::string::npos ? record_.entries.end()
                                                  : record_.entries.find(path.substr(0, slash));
    // With its directory, if that is gone or is none any more.
    const bool with_above =
        slash != std::string::npos &&
        (above == record_.entries.end() || above->second.pass < pass_ || !above->second.directory);
    if (with_above) continue;
    pack_().removal(path);
    pack_().list(TreeRecord::removed_line(path));
    ++result_.removals;
  }
  for (const auto& path : gone) record_.entries.erase(path);
}

}  // namespace moorage::workspace
