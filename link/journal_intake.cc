#include "link/journal_intake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/wire/command_mark.h"
#include "base/wire/journal.h"
#include "base/wire/outpost_requests.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr auto kRoomPause = 100ms;     // until the daemon has cut the middle of a journal
constexpr auto kMissingPause = 500ms;  // the start of its command may still be on its way
constexpr unsigned kMissingTries = 6;

// The whole frame at the front, checked; empty: more bytes are needed. `output` is the offset that
// it must have, and then that of the next frame: readers stop at any other. Throws corrupted.
std::optional<base::FrameHeader> whole_frame(std::string_view bytes, uint64_t& output) {
  if (bytes.size() < base::kFrameHeaderBytes) return std::nullopt;
  base::FrameHeader header;
  header.kind = static_cast<base::FrameKind>(bytes[4]);
  header.payload_bytes = base::number_at<uint32_t>(&bytes[8]);
  header.wall_ns = base::number_at<int64_t>(&bytes[16]);
  header.output_offset = base::number_at<uint64_t>(&bytes[24]);
  const auto kind = static_cast<uint8_t>(bytes[4]);
  if (kind == 0 || kind > static_cast<uint8_t>(base::FrameKind::gap) ||
      header.payload_bytes > base::kMaxPayload) {
    throw Error(Code::corrupted, "the other machine sent an invalid frame of a journal");
  }
  const std::string_view payload = bytes.substr(base::kFrameHeaderBytes, header.payload_bytes);
  if (payload.size() < header.payload_bytes) return std::nullopt;
  const auto expected = base::encode_frame_header(header, payload);
  if (bytes.substr(0, expected.size()) != std::string_view(expected.data(), expected.size()))
    throw Error(Code::corrupted, "the other machine sent a damaged frame of a journal");
  if (header.output_offset != output)
    throw Error(Code::corrupted, "the other machine sent a frame of a journal out of order");
  if (base::is_output(header.kind)) output += header.payload_bytes;
  if (header.kind == base::FrameKind::gap) {
    // Only we cut a journal, so a gap there covers no bytes of the file.
    const auto gap = base::decode_gap(payload);
    if (!gap || gap->skip_bytes != 0 || gap->dropped_bytes > UINT64_MAX / 2 - output)
      throw Error(Code::corrupted, "the other machine sent an invalid gap of a journal");
    output += gap->dropped_bytes;
  }
  return header;
}

}  // namespace

Journal::Journal(base::Loop& loop, JournalHost& host, JournalFile file)
    : loop_(loop), host_(host), file_(std::move(file)), later_(loop) {
  // Opened again for reading: the daemon gave a descriptor that can only append.
  const base::Fd reading = base::open_file(base::proc_path(file_.fd.get()), O_RDONLY | O_NOCTTY);
  base::JournalReader reader(reading.get());
  while (auto frame = reader.next()) {
    if (frame->header.kind == base::FrameKind::end) ended_here_ = true;
  }
  struct stat status;
  base::check(fstat(file_.fd.get(), &status), "inspect a journal");
  size_ = reader.file_position();
  output_ = reader.output_offset();
  // The rest of a frame whose writer was killed comes again.
  if (static_cast<uint64_t>(status.st_size) > size_) {
    const base::Fd writing = base::open_file(base::proc_path(file_.fd.get()), O_WRONLY);
    base::check(ftruncate(writing.get(), static_cast<off_t>(size_)), "cut a journal");
  }
}

void Journal::detach() {
  later_.stop();
  stream_ = nullptr;
}

void Journal::follow(Stream& stream, bool expected) {
  if (stream_ == &stream) return;
  later_.stop();
  stream_ = &stream;
  partial_.clear();
  unconsumed_ = 0;
  end_seen_ = released_ = ended_here_;
  spool_ended_ = false;
  channel_ = stream.open(json::serialize(json::object{{"what", base::outpost::kJournal},
                                                      {"tag", file_.tag},
                                                      {"offset", size_},
                                                      {"waits", expected}}),
                         weak_from_this());
}

void Journal::leave() {
  later_.stop();
  if (Stream* stream = std::exchange(stream_, nullptr))
    stream->reset(channel_, Error(Code::conflict, "nobody waits for it"));
}

void Journal::on_data(std::string_view bytes) {
  missing_ = 0;
  partial_ += bytes;
  unconsumed_ += bytes.size();
  try {
    take_frames();
  } catch (const Error& error) {
    fail(error);
  }
}

void Journal::fail(const Error& error) {
  const std::shared_ptr<Journal> self = shared_from_this();
  later_.stop();
  stream_->reset(channel_, error);
  stream_ = nullptr;
  host_.journal_failed(file_.tag, error);
}

void Journal::take_frames() {
  // It waits, within the channel's window: not to be checked again with each byte that comes.
  if (later_.running() || (end_seen_ && !released_)) return;
  std::string_view rest = partial_;
  size_t frames_bytes = 0;
  uint64_t output = output_;
  while (const auto header = whole_frame(rest, output)) {
    if (header->kind == base::FrameKind::end && !end_seen_) {
      append(std::string_view(partial_).substr(0, frames_bytes));
      output_ = output;
      partial_.erase(0, frames_bytes);
      return hold_end();
    }
    const size_t size = base::kFrameHeaderBytes + header->payload_bytes;
    frames_bytes += size;
    rest.remove_prefix(size);
  }
  if (!has_room()) {
    later_.start(kRoomPause, [this] { retry(); });
    return;
  }
  append(std::string_view(partial_).substr(0, frames_bytes));
  output_ = output;
  partial_.erase(0, frames_bytes);
  give_back();
}

void Journal::retry() {
  try {
    take_frames();
    finish_if_done();
  } catch (const Error& error) {
    fail(error);
  }
}

void Journal::append(std::string_view frames) {
  if (frames.empty()) return;
  base::write_all(file_.fd.get(), frames);
  size_ += frames.size();
  std::string offset;
  base::append_number(offset, size_);
  if (stream_->room(channel_) >= offset.size()) stream_->send(channel_, offset);
}

// `end` is at the front of partial_. It and what follows stay there.
void Journal::hold_end() {
  end_seen_ = true;
  host_.sync_for_end([weak = weak_from_this(), stream = stream_] {
    const auto self = weak.lock();
    if (!self || self->stream_ != stream || self->released_) return;
    self->released_ = true;
    self->ended_here_ = true;
    self->retry();
  });
}

bool Journal::has_room() {
  if (file_.room_bytes == 0) return true;
  struct stat status;
  base::check(fstat(file_.fd.get(), &status), "inspect a journal");
  const uint64_t used = static_cast<uint64_t>(status.st_blocks) * 512;
  return used < file_.room_bytes + kRoomSlackBytes;
}

void Journal::give_back() { stream_->consumed(channel_, std::exchange(unconsumed_, 0)); }

void Journal::on_end() {
  spool_ended_ = true;
  finish_if_done();
}

void Journal::finish_if_done() {
  if (!stream_ || !spool_ended_ || later_.running()) return;
  if (end_seen_ && !released_) return;
  if (!partial_.empty() || !released_) {
    return fail(Error(Code::corrupted,
                      "the other machine ended a journal within a frame, or "
                      "before its command's end"));
  }
  const std::shared_ptr<Journal> self = shared_from_this();
  stream_->end(channel_);
  stream_ = nullptr;
  host_.journal_finished(file_.tag);
}

void Journal::on_over(const Error& reason) {
  const std::shared_ptr<Journal> self = shared_from_this();
  Stream* stream = std::exchange(stream_, nullptr);
  later_.stop();
  if (!stream || stream->broken()) return;  // follow() comes with the next one
  if (reason.code() != Code::not_found || ++missing_ > kMissingTries)
    return host_.journal_failed(file_.tag, reason);
  later_.start(kMissingPause, [this, stream] {
    if (!stream_ && !stream->broken()) follow(*stream);
  });
}

uint32_t mark_of_running(const std::map<std::string, std::shared_ptr<Journal>>& journals) {
  const Journal* only = nullptr;
  for (const auto& [tag, journal] : journals) {
    if (!journal->running()) continue;
    if (only) return 0;
    only = journal.get();
  }
  return only ? base::command_mark(only->tag()) : 0;
}

bool any_running(const std::map<std::string, std::shared_ptr<Journal>>& journals) {
  return std::ranges::any_of(journals, [](const auto& entry) { return entry.second->running(); });
}

}  // namespace moorage::link
