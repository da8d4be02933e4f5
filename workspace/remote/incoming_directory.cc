#include "workspace/remote/incoming_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"

namespace moorage::workspace {
namespace {

constexpr std::string_view kPack = ".pack";
constexpr std::string_view kApplied = ".applied";
constexpr const char* kRefused = "/refused";
constexpr size_t kMaxReasonBytes = 4096;

std::vector<uint64_t> numbers(const std::string& directory, std::string_view ending) {
  std::vector<uint64_t> found;
  for (const std::string& name : base::list_directory_if_exists(directory)) {
    if (!name.ends_with(ending)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - ending.size());
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    // The worker names them; any other name is not a pack.
    if (error == std::errc() && end == stem.data() + stem.size() && std::to_string(number) == stem)
      found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void rename_over(const std::string& from, const std::string& to) {
  base::check(::rename(from.c_str(), to.c_str()), "rename " + from);
}

void remove_file(const std::string& path) {
  if (unlink(path.c_str()) < 0 && errno != ENOENT) base::throw_errno("remove " + path);
}

uint64_t inode_of(const std::string& path) {  // 0: none
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

struct Kept {
  std::string path;
  uint64_t bytes = 0;
  timespec changed{};
};

// Oldest first: by the time of their move here.
std::vector<Kept> kept_in(const std::string& directory) {
  std::vector<Kept> kept;
  for (const std::string& name : base::list_directory_if_exists(directory)) {
    struct stat status {};
    const std::string path = directory + "/" + name;
    if (lstat(path.c_str(), &status) == 0)
      kept.push_back({path, static_cast<uint64_t>(status.st_size), status.st_ctim});
  }
  std::sort(kept.begin(), kept.end(), [](const Kept& one, const Kept& other) {
    return std::pair(one.changed.tv_sec, one.changed.tv_nsec) <
           std::pair(other.changed.tv_sec, other.changed.tv_nsec);
  });
  return kept;
}

// Leaves room for one more of that size.
void make_room(const std::string& directory, uint64_t bytes) {
  std::vector<Kept> kept = kept_in(directory);
  uint64_t sum = bytes;
  for (const Kept& one : kept) sum += one.bytes;
  size_t left = kept.size();
  for (const Kept& oldest : kept) {
    if (left < kMostRefused && sum <= kMostRefusedBytes) return;
    remove_file(oldest.path);
    --left;
    sum -= oldest.bytes;
  }
}

}  // namespace

IncomingDirectory::IncomingDirectory(std::string sandbox_directory)
    : path_(std::move(sandbox_directory) + "/" + base::kIncoming) {}

std::string IncomingDirectory::pack_path(uint64_t number) const {
  return path_ + "/" + std::to_string(number) + std::string(kPack);
}

std::string IncomingDirectory::applied_path(uint64_t number) const {
  return path_ + "/" + std::to_string(number) + std::string(kApplied);
}

std::vector<uint64_t> IncomingDirectory::packs() const { return numbers(path_, kPack); }

std::vector<IncomingDirectory::Applied> IncomingDirectory::applied() const {
  std::vector<Applied> found;
  for (const uint64_t number : numbers(path_, kApplied))
    found.push_back({number, inode_of(applied_path(number))});
  return found;
}

base::Fd IncomingDirectory::open(uint64_t number) const {
  return base::open_file(pack_path(number), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
}

// A pack that came again under its number contains the first one's changes, so it may replace it.
void IncomingDirectory::set_applied(uint64_t number) const {
  rename_over(pack_path(number), applied_path(number));
}

void IncomingDirectory::wait_again() const {
  for (const uint64_t number : numbers(path_, kApplied)) {
    if (base::path_exists(pack_path(number))) {
      remove_file(applied_path(number));
    } else {
      rename_over(applied_path(number), pack_path(number));
    }
  }
}

void IncomingDirectory::remove(const std::vector<Applied>& applied) const {
  for (const Applied& one : applied) {
    const std::string path = applied_path(one.number);
    if (inode_of(path) == one.inode) remove_file(path);
  }
}

std::optional<std::string> IncomingDirectory::refused() const {
  return base::read_file_if_exists(path_ + kRefused, kMaxReasonBytes);
}

void IncomingDirectory::set_refused(const std::string& why) const {
  base::write_file_durable(path_ + kRefused, why.substr(0, kMaxReasonBytes));
}

bool IncomingDirectory::keep(uint64_t number, const std::string& directory,
                             const std::string& name) const {
  struct stat status {};
  base::check(lstat(pack_path(number).c_str(), &status), "inspect " + pack_path(number));
  const auto bytes = static_cast<uint64_t>(status.st_size);
  const bool fits = bytes <= kMostRefusedBytes;
  if (fits) {
    base::make_directories(directory);
    make_room(directory, bytes);
    rename_over(pack_path(number), directory + "/" + name);
  } else {
    remove_file(pack_path(number));
  }
  return fits;
}

}  // namespace moorage::workspace
