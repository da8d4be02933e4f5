#include "base/wire/journal_middle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::base {
namespace {

constexpr uint64_t kWardenAhead = 256 << 10;
constexpr uint64_t kGapFrameBytes = kFrameHeaderBytes + kGapBytes;
constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks

std::string frame_bytes(const FrameHeader& fields, const std::string& payload) {
  const auto header = encode_frame_header(fields, payload);
  return std::string(header.data(), header.size()) + payload;
}

std::string gap_frame(uint64_t offset, const Gap& gap) {
  const std::string payload = encode_gap(gap);
  return frame_bytes({FrameKind::gap, static_cast<uint32_t>(payload.size()), gap.last_ns, offset},
                     payload);
}

uint64_t size_of(int fd) {
  struct stat status;
  check(fstat(fd, &status), "stat the journal");
  return static_cast<uint64_t>(status.st_size);
}

// Allows writes to the middle of the file during its lifetime.
class Writable {
 public:
  explicit Writable(const std::string& path)
      : reader_(open_file(path, O_RDONLY | O_NOFOLLOW)),
        has_attribute_(set_append_only(reader_.get(), false)) {}
  ~Writable() {
    if (!has_attribute_) return;
    try {
      set_append_only(reader_.get(), true);
    } catch (const Error&) {
      // The next cut restores it: the attribute is a second line of defense, not the first.
    }
  }
  Writable(Writable&&) = delete;

 private:
  Fd reader_;
  bool has_attribute_;
};

}  // namespace

uint64_t journal_room(uint64_t limit_bytes) { return limit_bytes + kWardenAhead; }

void JournalMiddle::passed(const Frame& frame, uint64_t begin, uint64_t end) {
  const FrameHeader& header = frame.header;
  position_ = end;
  if (header.kind == FrameKind::gap) {
    const auto gap = decode_gap(frame.payload).value_or(Gap{});
    const uint64_t behind = header.output_offset + gap.dropped_bytes;
    if (gap.skip_bytes > 0) {
      cut_ = Cut{begin, end, header.output_offset, behind, gap.first_ns, gap.last_ns};
    } else {
      gaps_.emplace_back(header.output_offset, gap.dropped_bytes);
    }
  } else if (is_output(header.kind) &&
             (places_.empty() || begin - places_.back().position >= step_bytes_)) {
    places_.push_back({begin, header.output_offset, last_ns_, header.wall_ns});
  }
  last_ns_ = header.wall_ns;
}

// Where the cut begins: at most a quarter of the limit, or the first possible place.
std::optional<JournalMiddle::Place> JournalMiddle::head_end(uint64_t limit_bytes) const {
  std::optional<Place> best;
  for (const Place& place : places_) {
    if (cut_ && place.position > cut_->begin) break;
    if (!best || place.position <= limit_bytes / 4) best = place;
  }
  if (cut_ && (!best || cut_->begin <= limit_bytes / 4))
    best = Place{cut_->begin, cut_->begin_offset, 0, cut_->first_ns};
  return best;
}

std::optional<JournalMiddle::Cut> JournalMiddle::next_cut(uint64_t limit_bytes) const {
  const uint64_t gone = cut_ ? cut_->end - cut_->begin : 0;
  const uint64_t most = limit_bytes / 4 + limit_bytes / 2 + step_bytes_;
  const auto begin = head_end(limit_bytes);
  if (!begin || position_ - gone < most) return std::nullopt;
  const Place* last = nullptr;
  for (const Place& place : places_) {
    if (place.position + limit_bytes / 2 <= position_) last = &place;
  }
  const uint64_t from = cut_ ? cut_->end : begin->position + kGapFrameBytes;
  if (!last || last->position <= from) return std::nullopt;
  return Cut{begin->position, last->position, begin->offset,
             last->offset,    begin->at_ns,   last->before_ns};
}

void JournalMiddle::done(const Cut& cut) {
  cut_ = cut;
  std::erase_if(places_, [&](const Place& place) {
    return place.position >= cut.begin && place.position < cut.end;
  });
  std::erase_if(gaps_, [&](const auto& gap) {
    return gap.first >= cut.begin_offset && gap.first < cut.end_offset;
  });
}

uint64_t JournalMiddle::dropped_bytes() const {
  uint64_t sum = cut_ ? cut_->end_offset - cut_->begin_offset : 0;
  for (const auto& [offset, bytes] : gaps_) sum += bytes;
  return sum;
}

std::optional<JournalMiddle::Cut> cut_before_end(int fd, uint64_t output_bytes) {
  JournalMiddle::Cut cut;
  JournalReader reader(fd);
  std::optional<Frame> frame;
  do {
    cut.begin = reader.file_position();
    frame = reader.next();
    if (!frame || frame->header.kind == FrameKind::end) return std::nullopt;
  } while (frame->header.kind != FrameKind::gap && !is_output(frame->header.kind));
  const uint64_t behind_first = reader.file_position();
  const auto gap = frame->header.kind == FrameKind::gap ? decode_gap(frame->payload) : std::nullopt;
  cut.begin_offset = frame->header.output_offset;
  cut.first_ns = gap ? gap->first_ns : frame->header.wall_ns;
  reader.seek_output(output_bytes);  // reads only headers: there may be much output
  do {
    frame = reader.next();
    if (!frame) return std::nullopt;
  } while (frame->header.kind != FrameKind::end);
  cut.end = reader.file_position() - kFrameHeaderBytes - frame->payload.size();
  cut.end_offset = frame->header.output_offset;
  cut.last_ns = frame->header.wall_ns;
  if (cut.end <= behind_first && gap) return std::nullopt;  // already cut
  return cut.end > cut.begin + kGapFrameBytes ? std::optional(cut) : std::nullopt;
}

void cut_journal(const std::string& path, const JournalMiddle::Cut& cut) {
  const Writable writable(path);
  const Fd file = open_file(path, O_WRONLY | O_NOFOLLOW);
  const uint64_t from = cut.begin + kGapFrameBytes;
  const std::string frame =
      gap_frame(cut.begin_offset,
                {cut.end - from, cut.end_offset - cut.begin_offset, cut.first_ns, cut.last_ns});
  // A single write, so that a kill never leaves half of it. A reader that sees half of it rereads.
  if (::pwrite(file.get(), frame.data(), frame.size(), static_cast<off_t>(cut.begin)) !=
      static_cast<ssize_t>(frame.size())) {
    throw_errno("mark the removed middle of " + path);
  }
  if (::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                  static_cast<off_t>(cut.end - from)) < 0) {
    throw_errno("free the middle of " + path + " on the disk");
  }
}

JournalCopy copy_journal(int fd, const std::function<void(std::string_view)>& sink) {
  JournalCopy copy;
  const uint64_t size = size_of(fd);  // output continues: ignore frames written after this moment
  int64_t last_ns = 0;
  JournalReader reader(fd);
  while (reader.file_position() < size) {
    const auto frame = reader.next();
    if (!frame || frame->header.kind == FrameKind::end) break;
    if (frame->header.kind != FrameKind::gap) {
      sink(frame_bytes(frame->header, frame->payload));
      last_ns = frame->header.wall_ns;
    } else {
      // A cut may begin within the part already copied: then only its rest is missing here.
      Gap gap = decode_gap(frame->payload).value_or(Gap{});
      gap.skip_bytes = 0;
      if (frame->header.output_offset < copy.output_bytes) gap.first_ns = last_ns;
      gap.dropped_bytes = reader.output_offset() - copy.output_bytes;
      sink(gap_frame(copy.output_bytes, gap));
      copy.dropped_bytes += gap.dropped_bytes;
    }
    copy.output_bytes = reader.output_offset();
  }
  return copy;
}

std::vector<CompactPart> compact_journal(int fd) {
  struct stat status;
  check(fstat(fd, &status), "stat the journal");
  const auto size = static_cast<uint64_t>(status.st_size);
  const bool holes = static_cast<uint64_t>(status.st_blocks) * kBlockBytes < size;
  std::vector<CompactPart> parts;
  uint64_t from = 0;
  JournalReader reader(fd);
  for (uint64_t begin = 0; holes; begin = reader.file_position()) {
    const auto frame = reader.next();
    if (!frame) break;
    if (frame->header.kind != FrameKind::gap) continue;
    Gap gap = decode_gap(frame->payload).value_or(Gap{});
    if (gap.skip_bytes == 0) continue;
    gap.skip_bytes = 0;
    parts.push_back({from, begin - from, {}});
    parts.push_back({0, kGapFrameBytes, gap_frame(frame->header.output_offset, gap)});
    from = reader.file_position();
  }
  parts.push_back({from, size - std::min(from, size), {}});
  return parts;
}

}  // namespace moorage::base
