#include "packs/tree_restorer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"

namespace moorage::packs {
namespace {

constexpr size_t kMaxDepth = 1000;
constexpr mode_t kSpecialBits = 07000;

bool is_part(std::string_view part) {
  constexpr size_t kMaxNameBytes = 255;
  return !part.empty() && part != "." && part != ".." && part.size() <= kMaxNameBytes &&
         part.find('\0') == std::string_view::npos;
}

}  // namespace

TreeRestorer::TreeRestorer(const TreePlaces& places) : places_(places) {
  for (const auto& [prefix, path] : places.roots) roots_[prefix] = base::open_directory(path);
}

void TreeRestorer::refuse(const std::string& path, const std::string& why) {
  throw Error(Code::corrupted, base::escape_for_message(path.substr(0, 200)) + ": " + why);
}

void TreeRestorer::check(const Node& entry) const {
  for (const uint32_t id : {entry.uid, entry.gid}) {
    const bool fits = places_.ids == 0 ? id == 0 : id - places_.first_id < places_.ids;
    if (!fits) refuse(entry.path, "its owner is " + std::to_string(id));
  }
  const mode_t allowed = entry.type == NodeType::directory ? S_ISGID : 0;  // git sets it
  if (places_.ids == 0 && (entry.mode & kSpecialBits & ~allowed) != 0)
    refuse(entry.path, "its mode is invalid");
  for (const auto& [name, value] : entry.attributes) {
    if (!is_replicated_attribute(name) || name.find('\0') != std::string::npos)
      refuse(entry.path, "it has an attribute that Moorage does not copy");
  }
  if (places_.allowed && !places_.allowed(entry.path))
    refuse(entry.path, "this path is not allowed here");
  const bool plain = entry.type == NodeType::file || entry.type == NodeType::directory;
  if (places_.ids == 0 && !plain) refuse(entry.path, "it is neither a file nor a directory");
}

// Opens level by level, so that neither the length of a path nor a link in it matters. Keeps the
// open levels for the next path, which is mostly nearby.
TreeRestorer::Place TreeRestorer::find(const std::string& path) {
  std::vector<std::string_view> parts = base::split(path, '/');
  if (parts.size() > kMaxDepth || !std::all_of(parts.begin(), parts.end(), is_part))
    refuse(path, "its path is invalid");
  const bool prefixed = !roots_.contains("");
  const std::string root(prefixed ? parts.front() : "");
  const auto top = roots_.find(root);
  if (top == roots_.end()) refuse(path, "this path is outside the layer");
  if (prefixed) parts.erase(parts.begin());
  if (parts.empty()) return {top->second.get(), {}};
  const std::string name(parts.back());
  parts.pop_back();
  if (root != root_) levels_.clear();
  root_ = root;
  size_t same = 0;
  while (same < std::min(parts.size(), levels_.size()) && levels_[same].name == parts[same]) ++same;
  levels_.resize(same);
  for (size_t n = same; n < parts.size(); ++n) {
    const int above = n == 0 ? top->second.get() : levels_[n - 1].fd.get();
    std::string below(parts[n]);
    Fd fd = base::try_open_directory_beneath(above, below);
    if (!fd) refuse(path, "its directory is missing");
    levels_.push_back({std::move(below), std::move(fd)});
  }
  return {levels_.empty() ? top->second.get() : levels_.back().fd.get(), name};
}

void TreeRestorer::entry(const Node& entry) {
  check(entry);
  ++entries_;
  const Place place = find(entry.path);
  if (entry.type == NodeType::directory) return make_directory(place, entry);
  if (place.name.empty()) refuse(entry.path, "the top of a layer must be a directory");
  remove(place, entry.path);
  if (entry.type == NodeType::hard_link) return make_link(entry);
  const std::string shown = base::escape_for_message(entry.path);
  if (entry.type != NodeType::file) {
    const Fd node = layers::make_node(place.directory, place.name, entry);
    base::check(node.get(), "make " + shown);
    return layers::complete_node(node.get(), entry, {shown});
  }
  file_ = base::try_open_beneath(place.directory, place.name, O_RDWR | O_CREAT | O_EXCL, 0600);
  base::check(file_.get(), "make " + shown);
  base::check(ftruncate(file_.get(), static_cast<off_t>(entry.size)), "set the size of " + shown);
  file_entry_ = entry;
  grows_ = false;
}

void TreeRestorer::make_link(const Node& entry) {
  const std::string what = "make " + base::escape_for_message(entry.path);
  // find() reuses its open levels, so keep the first directory open with its own descriptor.
  const Place from = find(entry.target);
  if (from.name.empty()) refuse(entry.target, "a directory cannot have hard links");
  const Fd source = base::try_open_beneath(from.directory, "", O_PATH | O_DIRECTORY);
  base::check(source.get(), what);
  struct stat status {};
  if (fstatat(source.get(), from.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0 ||
      !S_ISREG(status.st_mode)) {
    refuse(entry.path, "the target of this hard link is missing");
  }
  const Place to = find(entry.path);
  base::check(linkat(source.get(), from.name.c_str(), to.directory, to.name.c_str(), 0), what);
}

void TreeRestorer::make_directory(const Place& place, const Node& entry) {
  const std::string what = "make " + base::escape_for_message(entry.path);
  Fd fd;
  if (place.name.empty()) {
    fd = base::open_directory_beneath(place.directory, "");
  } else {
    struct stat status {};
    const bool there =
        fstatat(place.directory, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISDIR(status.st_mode)) base::remove_tree_at(place.directory, place.name);
    if (!there || !S_ISDIR(status.st_mode))
      base::check(mkdirat(place.directory, place.name.c_str(), 0700), what);
    fd = base::try_open_directory_beneath(place.directory, place.name);
    base::check(fd.get(), what);
    // Remove attributes that it lost since, such as an opaque mark.
    for (const std::string& name : base::attribute_names(fd.get())) {
      if (is_replicated_attribute(name) && !entry.attributes.contains(name))
        base::remove_attribute(fd.get(), name);
    }
  }
  layers::complete_node(fd.get(), entry, {base::escape_for_message(entry.path)});
  directory_times_[entry.path] = entry.mtime;
}

void TreeRestorer::growth(const std::string& path) {
  if (places_.allowed && !places_.allowed(path)) refuse(path, "this path is not allowed here");
  const Place place = find(path);
  if (place.name.empty()) refuse(path, "a directory cannot grow");
  file_ = base::try_open_regular_beneath(place.directory, place.name, O_RDWR);
  if (!file_) refuse(path, "only a regular file can grow");
  file_entry_ = {};
  file_entry_.path = path;
  grows_ = true;
}

void TreeRestorer::piece(uint64_t offset, std::string_view bytes) {
  if (!grows_ && offset + bytes.size() > file_entry_.size)
    refuse(file_entry_.path, "its data exceeds its size");
  try {
    base::write_at(file_.get(), bytes, offset);
  } catch (Error& error) {
    error.add_context("cannot write " + base::escape_for_message(file_entry_.path));
    throw;
  }
}

void TreeRestorer::end_pieces() {
  if (!grows_)
    layers::complete_node(file_.get(), file_entry_, {base::escape_for_message(file_entry_.path)});
  file_.reset();
}

void TreeRestorer::removal(const std::string& path) {
  const Place place = find(path);
  if (place.name.empty()) refuse(path, "the top of a layer cannot be removed");
  remove(place, path);
}

// Also drops the pending times below it. '0' is the character after '/'.
void TreeRestorer::remove(const Place& place, const std::string& path) {
  base::remove_tree_at(place.directory, place.name);
  directory_times_.erase(path);
  directory_times_.erase(directory_times_.lower_bound(path + "/"),
                         directory_times_.lower_bound(path + "0"));
}

void TreeRestorer::finish() {
  for (const auto& [path, time] : directory_times_) {
    const Place place = find(path);
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, time}};
    const char* const name = place.name.empty() ? "." : place.name.c_str();
    base::check(utimensat(place.directory, name, times.data(), AT_SYMLINK_NOFOLLOW),
                "set the time of " + base::escape_for_message(path));
  }
}

}  // namespace moorage::packs
