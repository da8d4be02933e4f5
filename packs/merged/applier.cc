#include "packs/merged/applier.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"
#include "packs/attributes.h"
#include "packs/merged/merged_digest.h"

namespace moorage::packs {
namespace {

// No entry of a sandbox has this name but one that copies it.
constexpr const char* kTemporary = ".moorage-8d6a5c0f3e914b7791c2d0475b1f6ae3";
constexpr mode_t kOwnersBits = 0700;
constexpr mode_t kSetIds = S_ISUID | S_ISGID;

std::string shown(const std::string& path) {
  constexpr size_t kMostShown = 200;
  return base::escape_for_message(path.substr(0, kMostShown));
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Code::corrupted, shown(path) + ": " + why);
}

bool is_part(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.size() <= NAME_MAX &&
         part.find('\0') == std::string_view::npos;
}

bool is_of_users(const std::string& name) { return name.starts_with("user."); }

bool may_have(NodeType type, const std::string& name) {
  if (name.starts_with("user.overlay.")) return false;
  if (type == NodeType::directory) return name != "security.capability";
  return type == NodeType::file && name != "system.posix_acl_default";
}

bool is_kept(const std::string& name) {
  return may_have(NodeType::directory, name) &&
         (is_of_users(name) || name.starts_with("system.posix_acl_"));
}

// Opens a directory even if its owner, who is this process, took away the right to.
Fd open_closed_directory(int above, const std::string& name) {
  Fd fd = base::try_open_directory_beneath(above, name);
  if (fd || errno != EACCES) return fd;
  const Fd pin = base::try_open_beneath(above, name, O_PATH | O_DIRECTORY);
  if (!pin || chmod(base::proc_path(pin.get()).c_str(), kOwnersBits) < 0) return {};
  return base::try_open_directory_beneath(above, name);
}

}  // namespace

struct MergedApplier::Level {
  std::string name;
  Fd fd;
  const MergedRoot* root;
  struct stat before {};  // to restore time and mode
  bool touched = false;
};

struct MergedApplier::OpenFile {
  Fd fd;
  Node entry;
  Place place;
  std::string made;  // its present name
  uint64_t end = 0;  // of the data
  std::optional<MergedDigest> digest;
};

MergedApplier::MergedApplier(const Options& options) : options_(options) {}
MergedApplier::~MergedApplier() = default;

void MergedApplier::count(const std::string& path) {
  if (options_.check_stopping) options_.check_stopping();
  if (applied_.entries + applied_.removals >= options_.limits.entries)
    refuse(path, "there are more than " + std::to_string(options_.limits.entries) + " changes");
  if (options_.allowed && !options_.allowed(path)) refuse(path, "this path is not allowed here");
}

void MergedApplier::check(const Node& entry, const MergedRoot& root) const {
  constexpr std::array kPossible{NodeType::file,      NodeType::directory, NodeType::symlink,
                                 NodeType::hard_link, NodeType::fifo,      NodeType::socket};
  if (std::find(kPossible.begin(), kPossible.end(), entry.type) == kPossible.end())
    refuse(entry.path, "it is a device");
  for (const uint32_t id : {entry.uid, entry.gid}) {
    if (!root.owners.only && id >= root.owners.ids)
      refuse(entry.path, "its owner is " + std::to_string(id));
  }
  if (entry.mode > 07777) refuse(entry.path, "its mode is invalid");
  if (entry.size > static_cast<uint64_t>(INT64_MAX)) refuse(entry.path, "its size is invalid");
  const std::string& target = entry.target;
  if (entry.type == NodeType::symlink &&
      (target.empty() || target.size() >= PATH_MAX || target.find('\0') != std::string::npos)) {
    refuse(entry.path, "its target is invalid");
  }
  for (const auto& [name, value] : entry.attributes) {
    if (!may_have(entry.type, name) || name.find('\0') != std::string::npos)
      refuse(entry.path, "it has an attribute that no sandbox can set");
  }
  try {
    check_attributes(entry.attributes, root.owners.first_id, shown(entry.path));
  } catch (const Error& error) {
    throw Error(Code::corrupted, error.message());
  }
}

// --- the open directories ---

void MergedApplier::close_levels(size_t kept) {
  while (levels_.size() > kept) {
    const Level& level = levels_.back();
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, level.before.st_mtim}};
    if (level.touched)
      base::check(futimens(level.fd.get(), times.data()), "set a directory's time");
    if ((level.before.st_mode & kOwnersBits) != kOwnersBits && geteuid() != 0)
      base::check(fchmod(level.fd.get(), level.before.st_mode & 07777), "set a directory's mode");
    levels_.pop_back();
  }
}

// False: there is no such directory.
bool MergedApplier::open_level(const std::string& name) {
  const int above = levels_.back().fd.get();
  Level level{name, {}, levels_.back().root};
  if (fstatat(above, name.c_str(), &level.before, AT_SYMLINK_NOFOLLOW) < 0 ||
      !S_ISDIR(level.before.st_mode)) {
    return false;
  }
  level.fd = open_closed_directory(above, name);
  if (!level.fd) base::throw_errno("open the directory " + shown(name));
  if ((level.before.st_mode & kOwnersBits) != kOwnersBits && geteuid() != 0)
    base::check(fchmod(level.fd.get(), kOwnersBits), "open a directory for writing");
  levels_.push_back(std::move(level));
  return true;
}

// Opens level by level, so that neither the length of a path nor a link in it matters. Keeps the
// open levels for the next path, which is mostly nearby.
std::optional<MergedApplier::Place> MergedApplier::find(const std::string& path, bool needed) {
  if (path.size() > options_.limits.path_bytes) refuse(path, "its path is too long");
  const std::vector<std::string_view> parts = base::split(path, '/');
  if (!std::all_of(parts.begin(), parts.end(), is_part)) refuse(path, "its path is invalid");
  if (parts.size() > options_.limits.depth + 1) refuse(path, "it is nested too deep");
  const auto root =
      std::find_if(options_.roots.begin(), options_.roots.end(),
                   [&](const MergedRoot& one) { return one.prefix == parts.front(); });
  if (root == options_.roots.end()) refuse(path, "it is in no directory of a sandbox");
  if (levels_.empty() || levels_.front().root != &*root) {
    close_levels(0);
    levels_.push_back({root->prefix, base::open_directory_beneath(root->merged, ""), &*root});
    base::check(fstat(levels_.back().fd.get(), &levels_.back().before), "check a directory");
  }
  size_t same = 1;
  while (same + 1 < parts.size() && same < levels_.size() && levels_[same].name == parts[same])
    ++same;
  close_levels(same);
  if (parts.size() == 1) return Place{levels_.front().fd.get(), "", &levels_.front(), &*root};
  while (levels_.size() + 1 < parts.size()) {
    if (open_level(std::string(parts[levels_.size()]))) continue;
    if (!needed) return std::nullopt;
    refuse(path, "its directory is missing");
  }
  return Place{levels_.back().fd.get(), std::string(parts.back()), &levels_.back(), &*root};
}

void MergedApplier::remove_at(const Place& place) {
  if (unlinkat(place.directory, place.name.c_str(), 0) < 0) {
    if (errno == ENOENT) return;
    base::remove_tree_at(place.directory, place.name);
  }
  place.level->touched = true;
}

void MergedApplier::removal(const std::string& path) {
  count(path);
  ++applied_.removals;
  const auto place = find(path, false);
  if (!place) return;  // gone with its directory
  if (place->name.empty()) refuse(path, "the top of a tree cannot be removed");
  remove_at(*place);
  if (options_.made) options_.made(path, {"", true, false});
}

// --- entries ---

void MergedApplier::learn(const std::string& path, const std::string& digest, bool fresh) {
  if (options_.made) options_.made(path, {digest, false, fresh});
}

void MergedApplier::entry(const Node& entry) {
  count(entry.path);
  ++applied_.entries;
  const Place place = *find(entry.path, true);
  check(entry, *place.root);
  if (entry.type == NodeType::directory) {
    const bool fresh = make_directory(place, entry);
    learn(entry.path, MergedDigest(entry).str(), fresh);
  } else if (place.name.empty()) {
    refuse(entry.path, "the top of a tree must be a directory");
  } else if (entry.type == NodeType::hard_link) {
    make_link(entry);
  } else {
    make_other(place, entry);
  }
  if (entry.type != NodeType::file) last_ = entry.path;
}

// Attributes of users that this file system cannot store are left out: without the rest, nothing
// would arrive at all.
void MergedApplier::complete(int fd, const Node& entry, const MergedRoot& root) {
  const InsideOwners& owners = root.owners;
  layers::Completion completion{shown(entry.path)};
  completion.first_id = owners.first_id;
  completion.keep_owner = owners.only.has_value();
  bool cut = false;
  completion.write_attributes = [&] {
    for (const auto& [name, value] : entry.attributes) {
      if (owners.only && !is_of_users(name)) continue;  // their ids do not exist here
      try {
        write_attributes(fd, {{name, value}}, owners.first_id, completion.what);
      } catch (const Error& error) {
        if (!is_of_users(name)) throw;
        cut = true;
      }
    }
  };
  Node made = entry;
  if (owners.only && entry.type == NodeType::file) made.mode &= ~uint32_t{kSetIds};
  layers::complete_node(fd, made, completion);
  if (cut) ++applied_.cut;
}

// For a directory that was there: attributes it lost since are removed.
void MergedApplier::update_directory(int fd, const Node& entry, const MergedRoot& root) {
  for (const std::string& name : base::attribute_names(fd)) {
    if (is_kept(name) && !entry.attributes.contains(name)) base::remove_attribute(fd, name);
  }
  complete(fd, entry, root);
}

// True: it was not there.
bool MergedApplier::make_directory(const Place& place, const Node& entry) {
  const std::string what = "make " + shown(entry.path);
  if (place.name.empty()) {
    update_directory(place.directory, entry, *place.root);
    base::check(fstat(place.directory, &place.level->before), what);
    return false;
  }
  bool fresh = mkdirat(place.directory, place.name.c_str(), kOwnersBits) == 0;
  if (!fresh && errno != EEXIST) base::throw_errno(what);
  struct stat status {};
  base::check(fstatat(place.directory, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW), what);
  if (!S_ISDIR(status.st_mode)) {
    remove_at(place);
    base::check(mkdirat(place.directory, place.name.c_str(), kOwnersBits), what);
    fresh = true;
  }
  if (fresh) place.level->touched = true;
  const Fd fd = open_closed_directory(place.directory, place.name);
  base::check(fd.get(), what);
  if (fresh) {
    complete(fd.get(), entry, *place.root);
  } else {
    update_directory(fd.get(), entry, *place.root);
  }
  return fresh;
}

// A name in use is replaced by a rename, so that a reader sees the old entry or the new one.
void MergedApplier::make_other(const Place& place, const Node& entry) {
  const std::string what = "make " + shown(entry.path);
  place.level->touched = true;
  const auto make = [&](const std::string& name) {
    return entry.type == NodeType::file
               ? base::try_open_beneath(place.directory, name, O_WRONLY | O_CREAT | O_EXCL, 0600)
               : layers::make_node(place.directory, name, entry);
  };
  std::string name = place.name;
  Fd fd = make(name);
  if (!fd && errno == EEXIST) {
    name = kTemporary;
    remove_at({place.directory, name, place.level, place.root});
    fd = make(name);
  }
  base::check(fd.get(), what);
  if (entry.type != NodeType::file) {
    complete(fd.get(), entry, *place.root);
    put_in_place(place, name, entry);
    return learn(entry.path, options_.made ? MergedDigest(entry).str() : "", false);
  }
  file_ = std::make_unique<OpenFile>();
  file_->fd = std::move(fd);
  file_->entry = entry;
  file_->place = place;
  file_->made = name;
  if (options_.made) file_->digest.emplace(entry);
}

void MergedApplier::put_in_place(const Place& place, const std::string& made, const Node& entry) {
  if (made == place.name) return;
  const std::string what = "replace " + shown(entry.path);
  const auto rename = [&] {
    return renameat(place.directory, made.c_str(), place.directory, place.name.c_str());
  };
  int done = rename();
  if (done < 0 && (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)) {
    base::remove_tree_at(place.directory, place.name);
    done = rename();
  }
  base::check(done, what);
  // A rename of one name of a file to another name of it does nothing.
  if (entry.type == NodeType::hard_link && unlinkat(place.directory, made.c_str(), 0) < 0 &&
      errno != ENOENT) {
    base::throw_errno(what);
  }
}

void MergedApplier::make_link(const Node& entry) {
  const std::string what = "make " + shown(entry.path);
  // find() reuses its open levels, so keep the first directory open with its own descriptor.
  const Place from = *find(entry.target, true);
  if (from.name.empty()) refuse(entry.path, "a directory cannot have hard links");
  const Fd source = base::open_directory_beneath(from.directory, "");
  struct stat status {};
  if (fstatat(source.get(), from.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0 ||
      S_ISDIR(status.st_mode) || S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
    refuse(entry.path, "the target of this hard link is missing");
  }
  const Place to = *find(entry.path, true);
  if (to.root != from.root) refuse(entry.path, "its hard link leads to another tree");
  to.level->touched = true;
  std::string name = to.name;
  const auto link = [&] {
    return linkat(source.get(), from.name.c_str(), to.directory, name.c_str(), 0);
  };
  if (entry.path == entry.target) return;
  int made = link();
  if (made < 0 && errno == EEXIST) {
    name = kTemporary;
    remove_at({to.directory, name, to.level, to.root});
    made = link();
  }
  base::check(made, what);
  put_in_place(to, name, entry);
}

void MergedApplier::growth(const std::string& path) { refuse(path, "only a log can grow"); }

void MergedApplier::piece(uint64_t offset, std::string_view bytes) {
  OpenFile& file = *file_;
  if (offset > file.entry.size || bytes.size() > file.entry.size - offset)
    refuse(file.entry.path, "its data exceeds its size");
  if (offset < file.end) refuse(file.entry.path, "its data is out of order");
  if (bytes.size() > options_.limits.bytes - applied_.bytes)
    refuse(file.entry.path,
           "there are more than " + std::to_string(options_.limits.bytes) + " bytes");
  if (options_.check_stopping) options_.check_stopping();
  try {
    base::write_at(file.fd.get(), bytes, offset);
  } catch (Error& error) {
    error.add_context("cannot write " + shown(file.entry.path));
    throw;
  }
  applied_.bytes += bytes.size();
  file.end = offset + bytes.size();
  if (file.digest) file.digest->add(offset, bytes);
}

void MergedApplier::end_pieces() {
  const std::unique_ptr<OpenFile> file = std::move(file_);
  const Node& entry = file->entry;
  if (file->end < entry.size && ftruncate(file->fd.get(), static_cast<off_t>(entry.size)) < 0) {
    if (errno == EFBIG || errno == EINVAL)
      refuse(entry.path, "it is larger than files can be here");
    base::throw_errno("set the size of " + shown(entry.path));
  }
  complete(file->fd.get(), entry, *file->place.root);
  put_in_place(file->place, file->made, entry);
  last_ = entry.path;
  if (file->digest) learn(entry.path, file->digest->str(), false);
}

void MergedApplier::finish() { close_levels(0); }

AppliedChanges apply_pack(const PackReader& pack, const MergedApplier::Options& options) {
  pack.verify(options.check_stopping);
  MergedApplier applier(options);
  pack.read_changes(applier);
  applier.finish();
  return applier.applied();
}

}  // namespace moorage::packs
