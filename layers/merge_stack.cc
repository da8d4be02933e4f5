#include "layers/merge_stack.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/os/open_beneath.h"

namespace moorage::layers {
namespace {

// Open descriptors of all levels: two for the new directory and the stream being read, one for each
// upper.
constexpr size_t kMostOpen = 256;
// About 60 MB: with a chain of 52 layers that all have the same directories, 9,000 levels.
constexpr size_t kMostUppers = 500'000;

struct alignas(file_handle) HandleRoom {
  char bytes[sizeof(file_handle) + MAX_HANDLE_SZ];
};

file_handle* as_handle(HandleRoom& room) {
  auto* handle = reinterpret_cast<file_handle*>(room.bytes);
  handle->handle_bytes = MAX_HANDLE_SZ;
  return handle;
}

}  // namespace

void KnownDirectory::close() {
  if (handle_.empty()) {
    HandleRoom room{};
    file_handle* handle = as_handle(room);
    int mount = 0;
    base::check(name_to_handle_at(fd_.get(), "", handle, &mount, AT_EMPTY_PATH),
                "get a file handle of a directory in a layer");
    handle_.assign(room.bytes, sizeof(file_handle) + handle->handle_bytes);
  }
  fd_.reset();
}

void KnownDirectory::open(int mount) {
  if (fd_) return;
  HandleRoom room{};
  memcpy(room.bytes, handle_.data(), handle_.size());
  fd_.reset(open_by_handle_at(mount, reinterpret_cast<file_handle*>(room.bytes),
                              O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  base::check(fd_.get(), "open a directory in a layer by its file handle");
}

std::optional<std::string> MergeLevel::next_name() {
  for (; listed < uppers.size(); ++listed, position = 0, stream.reset()) {
    if (!stream) {
      Fd again = base::open_directory_beneath(uppers[listed].directory.fd(), "");
      stream.reset(fdopendir(again.get()));
      if (!stream) base::throw_errno("list a directory of a layer");
      again.release();
      if (position != 0) seekdir(stream.get(), position);
    }
    errno = 0;
    while (const dirent* entry = readdir(stream.get())) {
      position = entry->d_off;
      const std::string_view next = entry->d_name;
      if (next != "." && next != "..") return std::string(next);
    }
    if (errno != 0) base::throw_errno("list a directory of a layer");
  }
  return std::nullopt;
}

void MergeStack::push(MergeLevel level) {
  uppers_ += level.uppers.size();
  if (uppers_ > kMostUppers) {
    throw Error(Code::resource_exhausted, "directories are nested too deeply in the layers (" +
                                              std::to_string(levels_.size()) + " levels)");
  }
  open_uppers_ += level.uppers.size();
  levels_.push_back(std::move(level));
  const auto descriptors = [this] { return open_uppers_ + 2 * (levels_.size() - closed_); };
  while (closed_ + 1 < levels_.size() && descriptors() > kMostOpen) close(levels_[closed_]);
}

void MergeStack::pop() {
  uppers_ -= top().uppers.size();
  open_uppers_ -= top().uppers.size();
  levels_.pop_back();
  if (!levels_.empty() && closed_ == levels_.size()) open(levels_.back());
}

void MergeStack::close(MergeLevel& level) {
  for (auto& upper : level.uppers) upper.directory.close();
  level.made.close();
  level.stream.reset();
  open_uppers_ -= level.uppers.size();
  ++closed_;
}

void MergeStack::open(MergeLevel& level) {
  for (auto& upper : level.uppers) upper.directory.open(layers_[upper.layer].get());
  level.made.open(made_.get());
  open_uppers_ += level.uppers.size();
  --closed_;
}

}  // namespace moorage::layers
