#include "outpost/stream/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "base/wire/outpost_requests.h"

namespace moorage::outpost {
namespace {

using std::chrono::milliseconds;

constexpr auto kFirstPause = milliseconds(2);
constexpr auto kLongestPause = milliseconds(500);
constexpr auto kPauseWithoutNotice = milliseconds(20);
constexpr int64_t kAwaitMs = 30'000;
constexpr uint64_t kBlock = 4096;
constexpr std::string_view kMagic = "MJ1\n";

Fd open_spool_file(const std::string& path) {
  Fd file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT)
    throw Error(Code::not_found, "no command of this name has a journal here");
  base::check(file.get(), "open a journal");
  return file;
}

}  // namespace

JournalChannel::JournalChannel(base::Loop& loop, Wire wire, const Options& options)
    : wire_(wire),
      is_living_(options.is_living),
      on_end_(options.on_end),
      file_(open_spool_file(options.path)),
      notice_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      sent_(options.offset),
      pause_(kFirstPause),
      again_(loop) {
  // A limit of the machine may be reached: then the timer has to do.
  if (notice_ && inotify_add_watch(notice_.get(), options.path.c_str(), IN_MODIFY) < 0)
    notice_.reset();
  if (notice_) {
    watch_ = std::make_unique<base::Watch>(loop, notice_.get(), EPOLLIN, [this](uint32_t) {
      while (read(notice_.get(), base::io_buffer().data(), base::io_buffer().size()) > 0) {
      }
      pause_ = kFirstPause;
      send_some();
    });
  }
  again_.start(milliseconds(0), [this] { send_some(); });
}

void JournalChannel::data(std::string_view bytes) {
  wire_.consumed(bytes.size());
  acknowledgement_ += bytes;
  constexpr size_t kSize = base::outpost::kAcknowledgementBytes;
  if (acknowledgement_.size() < kSize) return;
  const size_t whole = acknowledgement_.size() / kSize * kSize;
  const auto up_to = base::number_at<uint64_t>(acknowledgement_.data() + whole - kSize);
  acknowledgement_.erase(0, whole);
  punch(std::min(up_to, sent_));
}

// Whole blocks. A file system without holes keeps it all.
void JournalChannel::punch(uint64_t up_to) {
  up_to -= up_to % kBlock;
  if (up_to <= punched_) return;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(punched_),
            static_cast<off_t>(up_to - punched_));
  punched_ = up_to;
}

void JournalChannel::send_some() {
  while (!over_) {
    const size_t room = wire_.room();
    if (room == 0) return;  // writable() follows
    std::string bytes;
    try {
      bytes = base::read_at(file_.get(), room, sent_);
      scan(bytes);
    } catch (const Error& error) {
      over_ = true;
      return wire_.reset(error);
    }
    if (bytes.empty()) return at_end_of_file();
    wire_.send(bytes);
    sent_ += bytes.size();
    pause_ = kFirstPause;
    if (end_seen_ && on_end_) std::exchange(on_end_, {})();
  }
}

// Checks only the heads of frames. The warden wrote the file, so other bytes mean a wrong offset,
// or one in the part that was freed.
void JournalChannel::scan(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t payload = std::min<uint64_t>(payload_left_, bytes.size());
    payload_left_ -= payload;
    bytes.remove_prefix(payload);
    const size_t rest = std::min(base::kFrameHeaderBytes - head_.size(), bytes.size());
    if (payload_left_ > 0 || rest == 0) continue;
    head_ += bytes.substr(0, rest);
    bytes.remove_prefix(rest);
    if (head_.size() < base::kFrameHeaderBytes) return;
    const auto size = base::number_at<uint32_t>(head_.data() + 8);
    if (!head_.starts_with(kMagic) || size > base::kMaxPayload)
      throw Error(Code::corrupted, "no frame of the journal begins at this offset");
    if (head_[4] == static_cast<char>(base::FrameKind::end)) end_seen_ = true;
    payload_left_ = size;
    head_.clear();
  }
}

// The warden holds a lock on each journal that it may still write.
bool JournalChannel::is_written() const {
  if (flock(file_.get(), LOCK_SH | LOCK_NB) != 0) return true;
  flock(file_.get(), LOCK_UN);
  return false;
}

void JournalChannel::at_end_of_file() {
  struct stat status {};
  const bool done = end_seen_ ? !is_written() : !is_living_();
  base::check(fstat(file_.get(), &status), "inspect a journal");
  if (done && static_cast<uint64_t>(status.st_size) <= sent_) {
    over_ = true;
    again_.stop();
    watch_.reset();
    return wire_.end();
  }
  const milliseconds longest = notice_ ? kLongestPause : kPauseWithoutNotice;
  again_.start(std::min(pause_, longest), [this] { send_some(); });
  if (end_seen_ || !notice_)
    pause_ = std::min(pause_ * 2, longest);
  else
    pause_ = kLongestPause;
}

AwaitedJournal::AwaitedJournal(base::Loop& loop, Wire wire, JournalChannel::Options options)
    : loop_(loop),
      wire_(wire),
      options_(std::move(options)),
      since_ms_(base::monotonic_ms()),
      pause_(kFirstPause),
      again_(loop) {
  look();
}

void AwaitedJournal::data(std::string_view bytes) {
  if (found_) return found_->data(bytes);
  wire_.consumed(bytes.size());
}

void AwaitedJournal::writable() {
  if (found_) found_->writable();
}

void AwaitedJournal::look() {
  try {
    if (base::path_exists(options_.path))
      found_ = std::make_unique<JournalChannel>(loop_, wire_, options_);
    else if (base::monotonic_ms() - since_ms_ > kAwaitMs)
      throw Error(Code::not_found, "no command of this name has a journal here");
  } catch (const Error& error) {
    return wire_.reset(error);
  }
  if (found_) return;
  again_.start(pause_, [this] { look(); });
  pause_ = std::min(pause_ * 2, kPauseWithoutNotice);
}

}  // namespace moorage::outpost
