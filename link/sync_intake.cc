#include "link/sync_intake.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "base/wire/link_config.h"
#include "base/wire/outpost_requests.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr const char* kLast = "/last";
constexpr const char* kPart = "/part";  // never a pack yet
constexpr uint64_t kMaxPackBytes = 64ULL << 30;
constexpr auto kPatience = std::chrono::minutes(10);  // without a byte: a walk there takes time
constexpr std::string_view kPackEnding = ".pack";
// Free space that stays for the daemon, which has the same reserve unless it is configured.
constexpr uint64_t kReservedBytes = 1ULL << 30;
constexpr uint64_t kReservedShare = 50;       // one fiftieth of the disk, if that is less
constexpr uint64_t kBetweenChecks = 1 << 20;  // bytes written

void require_room(const std::string& directory) {
  const base::Space space = base::file_system_space(directory);
  if (space.free_bytes >= std::min(kReservedBytes, space.total_bytes / kReservedShare)) return;
  throw Error(Code::resource_exhausted,
              "the disk here is nearly full: what changed on the other machine waits there (" +
                  base::size_text(space.free_bytes) + " free)",
              "moorage gc --explain shows what can be freed, moorage du what uses the disk");
}

std::optional<uint64_t> pack_number(std::string_view name) {
  if (!name.ends_with(kPackEnding)) return std::nullopt;
  name.remove_suffix(kPackEnding.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

}  // namespace

// The channel of one sync.
class SyncIntake::Transfer : public ChannelUser {
 public:
  Transfer(base::Loop& loop, SyncIntake& intake, bool waits)
      : intake_(intake), waits_(waits), patience_(loop) {}

  void start(Stream& stream, const std::shared_ptr<Transfer>& self, uint64_t acknowledged) {
    stream_ = &stream;
    channel_ = stream.open(
        json::serialize(json::object{
            {"what", base::outpost::kSync}, {"acknowledged", acknowledged}, {"waits", waits_}}),
        self);
    if (!waits_) begin();
  }

  bool waits() const { return waits_; }

  // It begins there, unless it has begun already.
  void hurry() {
    if (!std::exchange(hurried_, true)) stream_->send(channel_, "b");
    await();
  }

  void on_data(std::string_view bytes) override {
    if (waits_) {  // the first byte says that it has begun
      waits_ = false;
      begin();
      stream_->consumed(channel_, 1);
      bytes.remove_prefix(1);
      intake_.begun();
    }
    await();
    if (bytes.empty()) return;
    try {
      if (bytes_ + bytes.size() > kMaxPackBytes)
        throw Error(Code::corrupted, "the other machine sent a pack that is too large");
      if (bytes_ >= check_at_) {
        require_room(intake_.directory_);
        check_at_ = bytes_ + kBetweenChecks;
      }
      if (!file_) {
        file_ = base::open_file(intake_.directory_ + kPart, O_WRONLY | O_CREAT | O_TRUNC, 0600);
      }
      base::write_all(file_.get(), bytes);
      bytes_ += bytes.size();
      stream_->consumed(channel_, bytes.size());
    } catch (const Error& error) {
      stream_->reset(channel_, error);
      intake_.finished(&error);
    }
  }

  void on_end() override {
    patience_.stop();
    try {
      if (waits_) throw Error(Code::corrupted, "the other machine ended a sync that had not begun");
      if (file_) base::sync_elsewhere(file_.get(), "sync a pack");
      file_.reset();
      intake_.commit(bytes_);
    } catch (const Error& error) {
      return intake_.finished(&error);
    }
    intake_.synced_ms_ = started_ms_;
    intake_.finished(nullptr);
  }

  void on_over(const Error& reason) override { intake_.finished(&reason); }

 private:
  void begin() {
    started_ms_ = base::monotonic_ms();
    stream_->end(channel_);
    stream_->grant_pack(channel_);
    await();
  }

  void await() {
    patience_.start(kPatience, [this] {
      const Error error(Code::deadline_exceeded, "the other machine did not send its changes");
      stream_->reset(channel_, error);
      intake_.finished(&error);
    });
  }

  SyncIntake& intake_;
  bool waits_;
  bool hurried_ = false;
  int64_t started_ms_ = 0;
  Stream* stream_ = nullptr;
  uint32_t channel_ = 0;
  base::Fd file_;
  uint64_t bytes_ = 0;
  uint64_t check_at_ = 0;
  base::Timer patience_;
};

SyncIntake::SyncIntake(base::Loop& loop, const std::string& sandbox_directory)
    : loop_(loop), directory_(sandbox_directory + "/" + base::kIncoming) {
  base::make_directories(directory_);
  if (const auto text = base::read_file_if_exists(directory_ + kLast, 32))
    std::from_chars(text->data(), text->data() + text->size(), last_);
  for (const std::string& name : base::list_directory(directory_))
    last_ = std::max(last_, pack_number(name).value_or(0));
}

SyncIntake::~SyncIntake() = default;

size_t SyncIntake::waiting_packs() const {
  const std::vector<std::string> names = base::list_directory(directory_);
  return static_cast<size_t>(std::count_if(
      names.begin(), names.end(), [](const auto& name) { return pack_number(name).has_value(); }));
}

// The machine says when such a sync begins, so it must not fill the directory.
bool SyncIntake::asks_ahead() const { return ahead_ && waiting_packs() < kMaxWaitingPacks; }

bool SyncIntake::busy() const { return current_ && !current_->waits(); }

void SyncIntake::attach(Stream& stream, bool ahead) {
  stream_ = &stream;
  ahead_ = ahead;
  if (!current_ && (!waiting_.empty() || asks_ahead())) start(waiting_.empty());
}

void SyncIntake::detach() { stream_ = nullptr; }

void SyncIntake::request(Done done) {
  waiting_.push_back(std::move(done));
  if (current_ && current_->waits()) return current_->hurry();
  if (!current_ && stream_) start(false);
}

void SyncIntake::begun() { served_ = std::exchange(waiting_, {}); }

void SyncIntake::start(bool waits) {
  if (!waits) begun();
  current_ = std::make_shared<Transfer>(loop_, *this, waits);
  try {
    current_->start(*stream_, current_, last_);
  } catch (const Error& error) {
    finished(&error);
  }
}

// The pack's name is the last thing that is done. If this is cut before it, the number in `last`
// is too low or right, never too high: then the same changes come again, which is harmless.
void SyncIntake::commit(uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t number = last_ + 1;
  const std::string path = directory_ + "/" + std::to_string(number) + std::string(kPackEnding);
  base::rename_into_place(directory_ + kPart, path);
  base::sync_directory(directory_);
  last_ = number;
  base::write_file(directory_ + kLast, std::to_string(number));
}

void SyncIntake::finished(const Error* error) {
  const std::shared_ptr<Transfer> over = std::move(current_);  // lives until this returns
  current_.reset();
  if (over->waits()) begun();                       // it was to serve those who asked
  if (error) unlink((directory_ + kPart).c_str());  // if any: the next one begins anew
  for (const Done& done : std::exchange(served_, {})) done(error);
  if (current_ || !stream_ || stream_->broken()) return;
  if (!waiting_.empty()) return start(false);
  // After a failure nothing is asked for ahead: it would fail at once, again and again.
  if (!error && asks_ahead()) start(true);
}

}  // namespace moorage::link
