#include "packs/frame_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::packs {
namespace {

constexpr size_t kReadBytes = 1 << 20;

[[noreturn]] void damaged(const std::string& what, const std::string& why) {
  throw Error(Code::corrupted, what + " is damaged: " + why);
}

}  // namespace

ByteSource part_of_file(int fd, uint64_t from, uint64_t bytes) {
  return [fd, at = from, end = from + bytes,
          piece = std::make_shared<std::string>()]() mutable -> std::string_view {
    *piece = base::read_at(fd, std::min<uint64_t>(kReadBytes, end - at), at);
    at += piece->size();
    return *piece;
  };
}

void verify_frame(int fd, uint64_t from, uint64_t bytes, const std::string& what,
                  const std::function<void()>& check_stopping) {
  if (bytes < kTrailerBytes) damaged(what, "a part of it is too short");
  const ByteSource source = part_of_file(fd, from, bytes - kTrailerBytes);
  base::Sha256 digest;
  uint64_t read = 0;
  for (std::string_view piece = source(); !piece.empty(); piece = source()) {
    if (check_stopping) check_stopping();
    digest.add(piece);
    read += piece.size();
  }
  const std::string trailer = base::read_at(fd, kTrailerBytes, from + bytes - kTrailerBytes);
  if (read != bytes - kTrailerBytes || trailer != frame_trailer(digest.raw()))
    damaged(what, "SHA-256 mismatch");
}

void FrameReader::refuse(const std::string& why) const { damaged(what_, why); }

void FrameReader::pass_on(uint64_t bytes, const std::function<void(std::string_view)>& sink) {
  while (bytes > 0) {
    if (have_.empty() && (have_ = frame_.next()).empty()) refuse("it ends too early");
    const size_t now = std::min<uint64_t>(bytes, have_.size());
    if (sink) sink(have_.substr(0, now));
    have_.remove_prefix(now);
    bytes -= now;
  }
}

std::string FrameReader::take(uint64_t bytes) {
  std::string taken;
  pass_on(bytes, [&](std::string_view part) { taken += part; });
  return taken;
}

std::string FrameReader::text(size_t most) {
  const auto length = number<uint32_t>();
  if (length > most) refuse("a text is too long");
  return take(length);
}

void FrameReader::require_end() {
  if (!have_.empty() || !frame_.next().empty()) refuse("there is data after its end");
}

}  // namespace moorage::packs
