#include "outpost/trees.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "packs/delta_pack.h"
#include "packs/merged/applier.h"
#include "packs/merged/tree_listing.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxListed = 1000;
constexpr size_t kMaxAfterBytes = 80 << 10;
constexpr int kNoteEveryMs = 200;
constexpr size_t kMaxBootBytes = 100;
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMaxListingBytes = 1 << 30;

std::string files_of(const std::string& tree) { return tree + "/files"; }
// Base64 or escapes are not needed: the path is a JSON string of bytes that link itself sent.
void note_after(const std::string& tree, const std::string& after) {
  base::write_file(tree + "/after",
                   json::serialize(json::object{{"boot", base::boot_id()}, {"after", after}}));
}

// Empty: nothing that counts has arrived.
std::string after_of(const std::string& tree) {
  const auto text = base::read_file_if_exists(tree + "/after", kMaxAfterBytes);
  if (!text) return {};
  boost::json::parse_options options;
  options.allow_invalid_utf8 = true;
  const json::value value = json::parse(*text, {}, options);
  if (value.at("boot").as_string() != base::boot_id()) return {};
  return std::string(value.at("after").as_string());
}

Fd lock_tree(const std::string& tree) {
  Fd file = base::open_file(tree + "/lock", O_RDWR | O_CREAT, 0600);
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) base::throw_errno("lock " + tree);
  }
  return file;
}

// Empty at the end, which may be a cut.
std::string_view read_some(const Fd& source, std::span<char> room) {
  ssize_t count = 0;
  do {
    count = read(source.get(), room.data(), room.size());
  } while (count < 0 && errno == EINTR);
  return {room.data(), static_cast<size_t>(base::check(count, "receive a tree"))};
}

// Whatever link still sends of a tree that is complete.
void drain(const Fd& source) {
  std::array<char, 64 << 10> piece;
  while (!read_some(source, piece).empty()) {
  }
}

class Copy {
 public:
  explicit Copy(int fd) : fd_(fd) {}
  void add(std::string_view bytes) {
    if (fd_ < 0) return;
    try {
      base::write_all(fd_, bytes);
    } catch (const Error&) {  // the tree matters more
      base::check(ftruncate(std::exchange(fd_, -1), 0), "empty a copy");
    }
  }

 private:
  int fd_;
};

std::string complete_file(const std::string& tree) { return tree + "/complete"; }

void apply_stream(const std::string& tree, const ReceiveTree& wanted, const Fd& source) {
  const Fd root = base::open_directory(files_of(tree));
  packs::MergedApplier::Options options;
  options.roots = {{"tree", root.get(), {}, owners_inside(wanted.overlay)}};
  packs::MergedApplier applier(options);
  std::vector<char> piece(kReadBytes);
  Copy copy(wanted.copy);
  auto noted = Clock::now();
  const auto note = [&] {
    if (!applier.last().empty()) note_after(tree, applier.last());
    noted = Clock::now();
  };
  const auto next = [&]() -> std::string_view {
    // Also before a pause, which may be a cut.
    if (!base::wait_readable(source.get(), kNoteEveryMs) ||
        Clock::now() - noted > std::chrono::milliseconds(kNoteEveryMs))
      note();
    const std::string_view bytes = read_some(source, piece);
    copy.add(bytes);
    return bytes;
  };
  try {
    packs::read_pack_stream(next, applier);
    applier.finish();
  } catch (const Error&) {
    note();
    throw;
  }
  note();
}

// Objects are at most two directories deep. Links and devices are not counted.
void list_files(const std::string& top, const std::string& below, json::array& entries) {
  const std::string directory = below.empty() ? top : top + "/" + below;
  for (const std::string& name : base::list_directory(directory)) {
    if (entries.size() >= kMaxListed) return;
    const std::string path = below.empty() ? name : below + "/" + name;
    struct stat status {};
    if (lstat((top + "/" + path).c_str(), &status) != 0) continue;
    if (S_ISREG(status.st_mode))
      entries.push_back(json::object{{"name", path}, {"size", status.st_size}});
    if (S_ISDIR(status.st_mode) && std::count(path.begin(), path.end(), '/') < 2)
      list_files(top, path, entries);
  }
}

}  // namespace

packs::InsideOwners owners_inside(OverlayKind overlay) {
  if (overlay == OverlayKind::root) return {kFirstId, kIds, {}};
  if (overlay == OverlayKind::none && geteuid() == 0) return {0, kIds, {}};
  return {0, 65536, kInsideUser};
}

bool is_complete(const std::string& tree) {
  const auto boot = base::read_file_if_exists(complete_file(tree), kMaxBootBytes);
  return boot && (boot->empty() || *boot == base::boot_id());
}

std::string complete_tree(const Directory& directory, const std::string& key) {
  const std::string tree = directory.tree(key);
  if (!is_complete(tree))
    throw Error(Code::not_found, "the tree " + key + " is not here, or not complete");
  return files_of(tree);
}

std::string describe_tree(const Directory& directory, const std::string& key) {
  const std::string tree = directory.tree(key);
  if (!is_complete(tree)) {
    json::object answer{{"has", false}};
    if (const std::string after = after_of(tree); !after.empty()) answer["after"] = after;
    return json::serialize(answer);
  }
  json::array entries;
  list_files(files_of(tree), "", entries);
  return json::serialize(json::object{{"has", true}, {"entries", std::move(entries)}});
}

std::string receive_tree(const Directory& directory, const ReceiveTree& wanted, Fd source) {
  const std::string tree = directory.tree(wanted.key);
  make_private_directory(tree);
  const Fd held = lock_tree(tree);
  const bool had = is_complete(tree);
  if (had && !wanted.more) {
    drain(source);
    return R"({"ok":true})";
  }
  if (!had && after_of(tree).empty()) base::remove_tree(files_of(tree));
  if (mkdir(files_of(tree).c_str(), 0755) != 0 && errno != EEXIST) base::throw_errno("make a tree");
  base::check(chmod(files_of(tree).c_str(), 0755), "set the mode of a tree");
  apply_stream(tree, wanted, source);
  if (had) {
    base::sync_file_system(tree);  // it counts as complete after a crash
  } else {
    base::write_file(complete_file(tree), base::boot_id());
  }
  return R"({"ok":true})";
}

std::string check_tree(const Directory& directory, const std::string& key, Fd source) {
  const std::string tree = directory.tree(key);
  std::string text;
  std::vector<char> piece(kReadBytes);
  for (;;) {
    const std::string_view some = read_some(source, piece);
    if (some.empty()) break;
    if (text.size() + some.size() > kMaxListingBytes)
      throw Error(Code::resource_exhausted, "the list of the tree " + key + " is too long");
    text += some;
  }
  const auto was_here = [&] {
    if (access(files_of(tree).c_str(), F_OK) != 0) return false;
    return is_complete(tree) || after_of(tree).empty();  // a pause may lose the notes, too
  };
  size_t differs = 0;
  if (was_here()) {
    const auto listed = packs::parse_listing(text);
    const Fd held = lock_tree(tree);
    differs = packs::count_differences(listed, packs::list_tree(files_of(tree)));
    if (differs > 0) {
      for (const std::string& file : {complete_file(tree), tree + "/after"}) unlink(file.c_str());
      base::sync_directory(tree);
    }
  }
  return json::serialize(json::object{{"differs", differs}});
}

void settle_tree(const Directory& directory, const std::string& key) {
  const std::string tree = directory.tree(key);
  const std::string& boot = base::boot_id();
  const auto holds_for_this_boot = [&] {
    return base::read_file_if_exists(complete_file(tree), kMaxBootBytes) == boot;
  };
  if (!holds_for_this_boot()) return;
  try {
    base::sync_file_system(tree);  // without the lock: whoever adds to the tree does not wait
  } catch (const Error&) {
    // Any of its data may be gone: it is started over.
    const Fd held = lock_tree(tree);
    for (const std::string& file : {complete_file(tree), tree + "/after"}) unlink(file.c_str());
    throw;
  }
  const Fd held = lock_tree(tree);
  if (holds_for_this_boot()) base::write_file_durable(complete_file(tree), "");
}

}  // namespace moorage::outpost
