#include "workspace/archive/read_back.h"

#include "base/error.h"
#include "workspace/archive/import_check.h"

namespace moorage::workspace {
namespace {

constexpr size_t kReadBytes = 256 << 10;

}  // namespace

ReadBack::ReadBack(packs::ByteSink sink, const ReadOptions& options)
    : sink_(std::move(sink)), options_(options), reader_([this] { read(); }) {}

ReadBack::~ReadBack() {
  if (!reader_.joinable()) return;
  pipe_.fail(Error(Code::unavailable, "the archive is incomplete: writing it stopped early"));
  reader_.join();
}

void ReadBack::read() {
  try {
    ImportCheck check(options_.unnamed_file);
    std::string piece;
    const packs::ByteSource source = [&]() -> std::string_view {
      return piece = pipe_.read(kReadBytes);
    };
    found_ = read_archive(source, options_, check);
  } catch (...) {
    failure_ = std::current_exception();
  }
  pipe_.leave();
}

void ReadBack::join() {
  reader_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    throw Error(error.code(), "an import would refuse this archive: " + error.message(),
                "nothing was exported, and the workspace is unaffected; if `moorage set` cannot "
                "fix the cause, please report this");
  }
}

void ReadBack::write(std::string_view bytes) {
  try {
    pipe_.write(bytes);
  } catch (const Error&) {  // the reader stopped and has the reason
    join();
    throw;
  }
  held_ += bytes;
  if (held_.size() <= packs::kTrailerBytes) return;
  sink_(std::string_view(held_).substr(0, held_.size() - packs::kTrailerBytes));
  held_.erase(0, held_.size() - packs::kTrailerBytes);
}

void ReadBack::finish(const packs::ArchiveFacts& written) {
  pipe_.finish();
  join();
  if (found_.digest != written.digest || found_.entries != written.entries ||
      found_.stream.sha256 != written.stream.sha256) {
    throw Error(Code::corrupted, "the archive reads back differently than it was written",
                "nothing was exported, and the workspace is unaffected; please report this");
  }
  sink_(held_);
}

}  // namespace moorage::workspace
