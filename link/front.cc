#include "link/front.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/wire/outpost_requests.h"
#include "link/http_head.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kMaxOwnBodyBytes = 1 << 20;
constexpr size_t kMaxHeldBytes = 128 << 10;  // of a request, before more is read
constexpr size_t kMaxFds = 16;
constexpr std::chrono::milliseconds kHoldPatience{10'000};  // for a link that lost its machine
constexpr size_t kMaxClients = 900;  // each has a channel: below kMuxMaxChannels
constexpr std::string_view kStartPath = "/process.Process/Start";
constexpr std::string_view kGood = "HTTP/1.1 200";

// As a warden answers GET /health.
constexpr std::string_view kHealthPath = "/health";
constexpr const char* kHealthy = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

std::string answer_text(int status, std::string_view body) {
  const std::string reason = status == 200 ? "OK" : "Error";
  return "HTTP/1.1 " + std::to_string(status) + " " + reason +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + std::string(body);
}

std::string error_body(const Error& error) {
  return json::serialize(json::object{{"code", base::code_name(error.code())},
                                      {"message", error.message()},
                                      {"hint", error.hint()}});
}

// The body says the rest.
int status_of(const Error& error) {
  if (error.code() == Code::invalid_argument) return 400;
  if (error.code() == Code::not_found) return 404;
  return error.code() == Code::unavailable ? 503 : 500;
}

}  // namespace

json::object FrontRequest::fields() const {
  boost::system::error_code invalid;
  const json::value value = json::parse(body, invalid);
  return invalid || !value.is_object() ? json::object() : value.get_object();
}

// One connection of the daemon.
class Front::Client : public ChannelUser, public std::enable_shared_from_this<Client> {
 public:
  Client(Front& front, base::Fd socket)
      : front_(front),
        socket_(std::move(socket)),
        watch_(front.loop_, socket_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); }),
        held_(front.loop_) {}

  void go_on();

  void on_data(std::string_view bytes) override {
    if (!tag_.empty()) judge_start(bytes);
    out_ += bytes;
    flush();
  }
  void on_end() override {
    ended_ = true;
    flush();
  }
  void on_room() override { pump(); }
  void on_over(const Error& reason) override {
    const Stream* stream = std::exchange(stream_, nullptr);
    // It may have been carried out, or its answer was cut: the daemon must see neither answer nor
    // refusal.
    if (stream->broken() || answered_) return close();
    if (!tag_.empty()) front_.host_.command_refused(std::exchange(tag_, {}));
    answer(status_of(reason), error_body(reason));
  }

 private:
  enum class Mode { head, body, waiting, held, relay, closing };

  void on_events(uint32_t events) {
    const std::shared_ptr<Client> self = shared_from_this();
    if (events & EPOLLOUT) flush();
    if (mode_ != Mode::closing && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read();
  }

  void read();
  void on_bytes();
  void begin(HttpHead head);
  void hold();
  void relay(const HttpHead& head);
  void take_journal(const HttpHead& head);
  void judge_start(std::string_view bytes);
  void run_own();
  void pump();
  void flush();
  void answer(int status, std::string_view body);
  void update_events();
  void close();

  Front& front_;
  base::Fd socket_;
  Mode mode_ = Mode::head;
  std::string in_;  // received, not yet used
  std::vector<base::Fd> fds_;
  HttpHead head_;
  bool in_ended_ = false;
  Stream* stream_ = nullptr;
  uint32_t channel_ = 0;
  std::string out_;        // to the daemon
  bool relayed_ = false;   // out_ is of the channel: give credit
  bool answered_ = false;  // bytes of an answer have been sent
  bool ended_ = false;     // out_ is the rest
  std::string tag_;        // of a Start that was not yet answered
  std::string began_;      // its answer, as long as its status is not there
  base::Watch watch_;
  base::Timer held_;
};

void Front::Client::read() {
  const auto buffer = base::io_buffer();
  try {
    base::Received received;
    received =
        base::receive_with_fds(socket_.get(), std::min<size_t>(buffer.size(), 32 << 10), kMaxFds);
    for (base::Fd& fd : received.fds) fds_.push_back(std::move(fd));
    if (fds_.size() > kMaxFds) return close();
    if (received.bytes.empty()) in_ended_ = true;
    in_ += received.bytes;
  } catch (const Error&) {
    return close();  // the daemon has left
  }
  try {
    on_bytes();
  } catch (const Error& error) {
    answer(status_of(error), error_body(error));
  }
}

void Front::Client::on_bytes() {
  if (mode_ == Mode::head) {
    auto head = parse_http_head(in_);
    if (!head && in_.size() > kMaxHeadBytes)
      throw Error(Code::invalid_argument, "the head of a request is too large");
    if (!head && in_ended_) return close();
    if (!head) return;
    return begin(std::move(*head));
  }
  if (mode_ == Mode::body) return run_own();
  if (mode_ == Mode::relay) return pump();
  if (mode_ == Mode::waiting && in_ended_) close();
}

void Front::Client::begin(HttpHead head) {
  head_ = std::move(head);
  if (!front_.host_.answers(head_.path)) return front_.host_.comes_back() ? hold() : relay(head_);
  if (head_.number("content-length") > kMaxOwnBodyBytes)
    throw Error(Code::invalid_argument, "the body of a request is too large");
  in_.erase(0, head_.bytes);
  mode_ = Mode::body;
  run_own();
}

void Front::Client::run_own() {
  const auto size = static_cast<size_t>(head_.number("content-length"));
  if (in_.size() < size) {
    if (in_ended_) close();
    return;
  }
  mode_ = Mode::waiting;
  FrontRequest request{head_.method, head_.path, in_.substr(0, size), std::move(fds_)};
  front_.host_.handle(
      std::move(request), [weak = weak_from_this()](const std::string& body, const Error* error) {
        const auto self = weak.lock();
        if (!self || self->mode_ != Mode::waiting) return;
        self->answer(error ? status_of(*error) : 200, error ? error_body(*error) : body);
      });
}

// A moment without a connection is no reason to refuse a command.
void Front::Client::hold() {
  mode_ = Mode::held;
  update_events();
  held_.start(kHoldPatience, [this] { go_on(); });
}

void Front::Client::go_on() {
  if (mode_ != Mode::held) return;
  held_.stop();
  try {
    relay(head_);
  } catch (const Error& error) {
    answer(status_of(error), error_body(error));
  }
}

void Front::Client::relay(const HttpHead& head) {
  Stream& stream = front_.host_.running_sandbox();
  if (head.path == kStartPath && head.header("moorage-journal") == "1") {
    take_journal(head);
    in_.replace(0, head.bytes, head_for_spool(head));
  }
  fds_.clear();
  try {
    channel_ = stream.open(json::serialize(json::object{{"what", base::outpost::kHttp}}),
                           weak_from_this());
  } catch (const Error&) {
    if (!tag_.empty()) front_.host_.command_refused(std::exchange(tag_, {}));
    throw;
  }
  stream_ = &stream;
  relayed_ = true;
  mode_ = Mode::relay;
  pump();
  if (!tag_.empty()) front_.host_.command_asked(tag_);
}

void Front::Client::take_journal(const HttpHead& head) {
  const std::string tag = head.header("moorage-tag");
  if (tag.empty() || fds_.empty())
    throw Error(Code::invalid_argument, "a command needs a tag and the descriptor of its journal");
  front_.host_.keep_journal({tag, std::move(fds_[0]), head.number("moorage-journal-room")});
  tag_ = tag;
}

// The first bytes of the answer to Start.
void Front::Client::judge_start(std::string_view bytes) {
  began_ += bytes.substr(0, kGood.size() - began_.size());
  if (began_.size() < kGood.size() && kGood.starts_with(began_)) return;
  const std::string tag = std::exchange(tag_, {});
  if (began_ == kGood)
    front_.host_.command_started(tag);
  else
    front_.host_.command_refused(tag);
}

void Front::Client::pump() {
  if (mode_ != Mode::relay || !stream_) return;
  const size_t size = std::min(in_.size(), stream_->room(channel_));
  if (size > 0) {
    stream_->send(channel_, std::string_view(in_).substr(0, size));
    in_.erase(0, size);
  }
  if (in_ended_ && in_.empty()) stream_->end(channel_);
  update_events();
}

void Front::Client::flush() {
  const std::shared_ptr<Client> self = shared_from_this();
  size_t done = 0;
  while (done < out_.size()) {
    const ssize_t count =
        ::send(socket_.get(), out_.data() + done, out_.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return close();
    done += static_cast<size_t>(count);
    answered_ = true;
  }
  out_.erase(0, done);
  if (relayed_ && stream_ && done > 0) stream_->consumed(channel_, done);
  if (ended_ && out_.empty()) return close();
  update_events();
}

void Front::Client::answer(int status, std::string_view body) {
  mode_ = Mode::closing;
  relayed_ = false;
  ended_ = true;
  out_ = status == 200 && head_.path == kHealthPath ? kHealthy : answer_text(status, body);
  flush();
}

void Front::Client::update_events() {
  uint32_t events = 0;
  if (!out_.empty()) events |= EPOLLOUT;
  if (!in_ended_ && mode_ != Mode::closing && in_.size() < kMaxHeldBytes) events |= EPOLLIN;
  watch_.set_events(events);
}

void Front::Client::close() {
  mode_ = Mode::closing;
  watch_.set_events(0);
  if (Stream* stream = std::exchange(stream_, nullptr))
    stream->reset(channel_, Error(Code::conflict, "the daemon closed the connection"));
  front_.forget(this);  // after the watch, the socket
}

Front::Front(base::Loop& loop, FrontHost& host, base::Fd listener)
    : loop_(loop),
      host_(host),
      listener_(std::move(listener)),
      watch_(loop, listener_.get(), EPOLLIN, [this](uint32_t) { accept(); }) {}

Front::~Front() = default;

void Front::accept() {
  base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  if (clients_.size() >= kMaxClients) return;  // closed: the daemon sees that nothing was read
  auto client = std::make_shared<Client>(*this, std::move(socket));
  clients_.emplace(client.get(), client);
}

void Front::go_on() {
  const auto clients = clients_;  // each may leave
  for (const auto& [client, kept] : clients) client->go_on();
}

void Front::forget(Client* client) { clients_.erase(client); }

}  // namespace moorage::link
