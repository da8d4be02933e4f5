#include "link/network.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>

#include "base/error.h"
#include "base/wire/channel_socket.h"
#include "base/wire/outpost_requests.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using base::LineMessage;
using base::RelayKind;
using std::chrono::milliseconds;

constexpr uint32_t kNews = EPOLLIN | EPOLLET;  // a request stays in the line until it is answered
constexpr size_t kMaxRequests = 20'000;        // more than egress listens at
constexpr int64_t kPatienceMs = 10'000;        // egress has 20 s
constexpr size_t kMaxUnsentBytes = 2 << 20;    // all requests of a line, and more
constexpr milliseconds kAgain{1'000};
constexpr size_t kMaxQuestions = 1'024;
constexpr size_t kIdBytes = 2;  // a DNS message begins with its id
constexpr size_t kDnsHeaderBytes = 12;
constexpr size_t kMaxAnswerBytes = base::kMaxRelayPayload - base::kAskerBytes;

std::string request_text(const char* what) { return json::serialize(json::object{{"what", what}}); }

}  // namespace

// The channel `network`.
class Network::Control : public ChannelUser {
 public:
  Control(Network& network, Stream& stream) : network_(network), stream_(stream) {}
  void set_channel(uint32_t channel) { channel_ = channel; }

  void on_data(std::string_view bytes) override {
    stream_.consumed(channel_, bytes.size());
    in_.add(bytes);
    try {
      while (const auto frame = in_.next()) network_.from_outpost(*frame);
    } catch (const Error& error) {
      stream_.reset(channel_, error);
      on_over(error);
    }
  }
  void on_end() override {
    const Error error(Code::unavailable, "the network there has ended");
    stream_.reset(channel_, error);
    on_over(error);
  }
  void on_room() override {
    const size_t size = std::min(out_.size(), stream_.room(channel_));
    if (size == 0) return;
    const std::string piece = out_.substr(0, size);
    out_.erase(0, size);
    stream_.send(channel_, piece);
  }
  void on_over(const Error&) override {
    if (network_.control_.get() == this) network_.control_.reset();
    network_.begin_later();
  }

  // Without room for that many, outpost takes none. Then egress gets no answer in time, and a place
  // where nobody listens is refused again at its next connection.
  void send_line(const std::string& text) {
    if (out_.size() > kMaxUnsentBytes) return;
    out_ += relay_frame(RelayKind::line, text);
    on_room();
  }
  // Dropped if there is no room: its asker asks again.
  void send_datagram(std::string_view payload) {
    const std::string frame = relay_frame(RelayKind::datagram, payload);
    if (out_.empty() && stream_.room(channel_) >= frame.size()) stream_.send(channel_, frame);
  }

 private:
  Network& network_;
  Stream& stream_;
  uint32_t channel_ = 0;
  base::RelayReader in_;
  std::string out_;
};

namespace {

class StreamChannel : public base::ChannelSocket::Channel {
 public:
  StreamChannel(Stream& stream, uint32_t channel) : stream_(stream), channel_(channel) {}
  size_t room() const override { return stream_.room(channel_); }
  void send(std::string_view bytes) override { stream_.send(channel_, bytes); }
  void end() override { stream_.end(channel_); }
  void reset(const Error& reason) override { stream_.reset(channel_, reason); }
  void consumed(size_t bytes) override { stream_.consumed(channel_, bytes); }

 private:
  Stream& stream_;
  const uint32_t channel_;
};

}  // namespace

// A channel `accept`: first it waits, then it carries a connection.
class Network::Incoming : public ChannelUser {
 public:
  Incoming(Network& network, Stream& stream) : network_(network), stream_(stream) {}
  void set_channel(uint32_t channel) { channel_ = channel; }
  bool is_free() const { return !socket_; }

  void on_data(std::string_view bytes) override {
    if (socket_) return socket_->on_data(bytes);
    stream_.consumed(channel_, bytes.size());
    in_.add(bytes);
    try {
      if (const auto frame = in_.next()) connect(*frame);
    } catch (const Error& error) {
      give_up(error);
    }
  }
  void on_end() override {
    if (socket_) return socket_->on_end();
    give_up(Error(Code::corrupted, "an end before a connection"));
  }
  void on_room() override {
    if (socket_) socket_->on_room();
  }
  void on_over(const Error&) override {
    if (socket_) return socket_->on_gone();
    // Not at once: outpost may refuse every one.
    network_.begin_later();
    network_.forget(this);
  }

 private:
  void give_up(const Error& error) {
    stream_.reset(channel_, error);
    on_over(error);
  }
  void connect(const base::RelayFrame& frame) {
    const auto place = base::read_place(frame.payload);
    if (frame.kind != RelayKind::place || !place)
      throw Error(Code::corrupted, "not a place of a connection");
    auto [socket, error_number] = network_.sockets_->connect(*place, network_.mark_());
    if (!socket) return refuse(*place, error_number);
    socket_ = std::make_unique<base::ChannelSocket>(
        network_.loop_, std::move(socket), std::make_unique<StreamChannel>(stream_, channel_),
        [this] { network_.forget(this); });
    --network_.free_;
    network_.top_up();
    if (const std::string rest = in_.take_rest(); !rest.empty()) socket_->on_data(rest);
  }
  void refuse(const Place& place, int error_number) {
    // Another error says nothing: egress resets a connection that its rules forbid.
    if (error_number == ECONNREFUSED) network_.close_there(place);
    stream_.reset(channel_, Error(Code::not_found, "nobody takes the connection"));
    network_.forget(this);
    network_.top_up();
  }

  Network& network_;
  Stream& stream_;
  uint32_t channel_ = 0;
  base::RelayReader in_;
  std::unique_ptr<base::ChannelSocket> socket_;
};

Network::Network(base::Loop& loop, InsideSockets* sockets, Mark mark)
    : loop_(loop), sockets_(sockets), mark_(std::move(mark)), patience_(loop), again_(loop) {}

Network::~Network() = default;

// ---- the line to egress

void Network::set_line(base::Fd line) {
  if (!sockets_) throw Error(Code::unsupported, "this host gives the sandbox no network namespace");
  const int from_start = 0;
  // Of the socket, not of the descriptor: what a former worker has read and not answered is read
  // again.
  if (setsockopt(line.get(), SOL_SOCKET, SO_PEEK_OFF, &from_start, sizeof from_start) != 0)
    throw Error(Code::invalid_argument, "the descriptor is not a line for the network");
  base::check(fcntl(line.get(), F_SETFL, O_NONBLOCK), "set up a line");
  end_line();
  line_ = std::move(line);
  line_watch_.emplace(loop_, line_.get(), kNews, [this](uint32_t events) { on_line(events); });
}

void Network::end_line() {
  line_watch_.reset();
  line_.reset();
  requests_.clear();
  patience_.stop();
}

void Network::on_line(uint32_t events) {
  if ((events & EPOLLOUT) != 0) answer_line();
  hear_line();
}

void Network::hear_line() {
  while (line_) {
    std::array<char, base::kMaxLineMessage> bytes;
    const ssize_t size = recv(line_.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    const auto message =
        base::read_line_message({bytes.data(), static_cast<size_t>(size > 0 ? size : 0)});
    if (!message || message->kind != LineMessage::Kind::listen || requests_.size() >= kMaxRequests)
      return end_line();
    requests_.push_back({{message->address, message->port}, base::monotonic_ms(), {}});
    if (!patience_.running()) check_patience();
    ask(requests_.back().place);
  }
}

void Network::check_patience() {
  const int64_t now = base::monotonic_ms();
  for (Request& request : requests_) {
    if (request.answer || now - request.since_ms < kPatienceMs) continue;
    request.answer = {LineMessage::Kind::refused, request.place.address, request.place.port,
                      EHOSTUNREACH};
  }
  answer_line();
  if (!requests_.empty()) patience_.start(kAgain, [this] { check_patience(); });
}

// In the order of the requests, and only while there is room.
void Network::answer_line() {
  while (line_ && !requests_.empty() && requests_.front().answer) {
    pollfd room{line_.get(), POLLOUT, 0};
    if (poll(&room, 1, 0) == 0) return line_watch_->set_events(kNews | EPOLLOUT);
    line_watch_->set_events(kNews);
    const LineMessage answer = *requests_.front().answer;
    requests_.pop_front();
    // The request leaves the line only now, for a worker that takes over.
    char taken = 0;
    if (recv(line_.get(), &taken, sizeof taken, MSG_DONTWAIT) <= 0 || !send_answer(answer))
      return end_line();
  }
}

// False: the other side is gone.
bool Network::send_answer(const LineMessage& answer) {
  LineMessage message = answer;
  InsideSockets::Made made;
  if (answer.kind == LineMessage::Kind::listening)
    made = sockets_->listen({answer.address, answer.port});
  if (answer.kind == LineMessage::Kind::listening && !made.socket) {
    message.kind = LineMessage::Kind::refused;
    message.error_number = made.error_number;
  }
  const int fd = made.socket.get();
  try {
    base::send_with_fds(line_.get(), base::line_text(message), {&fd, made.socket ? 1U : 0U});
    return true;
  } catch (const Error&) {
    return false;
  }
}

// ---- the machine there

void Network::attach(Stream& stream) {
  if (!sockets_) return;
  stream_ = &stream;
  begin();
}

void Network::detach() {
  stream_ = nullptr;
  control_.reset();
  again_.stop();
}

void Network::begin_later() {
  if (!stream_ || again_.running()) return;
  again_.start(kAgain, [this] { begin(); });
}

void Network::begin() {
  if (!stream_ || stream_->broken()) return;
  top_up();
  if (control_) return;
  try {
    if (!resolver_) {
      resolver_ = std::move(sockets_->resolver_client().socket);
      resolver_watch_.emplace(loop_, resolver_.get(), EPOLLIN,
                              [this](uint32_t) { take_answers(); });
    }
    auto control = std::make_shared<Control>(*this, *stream_);
    control->set_channel(stream_->open(request_text(base::outpost::kNetwork), control));
    control_ = std::move(control);
    // Those that egress has from a former stream or worker, then those that it waits for.
    for (const Place& place : sockets_->listeners()) ask(place);
    for (const Request& request : requests_) {
      if (!request.answer) ask(request.place);
    }
  } catch (const Error&) {
    begin_later();
  }
}

void Network::ask(const Place& place) {
  if (control_)
    control_->send_line(base::line_text({LineMessage::Kind::listen, place.address, place.port, 0}));
}

// Egress has closed its socket, so the place may not be listened at there either. If egress waits
// for it again, it was asked for before this.
void Network::close_there(const Place& place) {
  const bool waits =
      std::ranges::any_of(requests_, [&](const Request& one) { return one.place == place; });
  if (!control_ || waits || place.address == base::kResolverInside) return;
  control_->send_line(
      base::line_text({LineMessage::Kind::refused, place.address, place.port, ECONNREFUSED}));
}

void Network::from_outpost(const base::RelayFrame& frame) {
  if (frame.kind == RelayKind::datagram) return ask_resolver(frame.payload);
  auto message = base::read_line_message(frame.payload);
  if (frame.kind != RelayKind::line || !message || message->kind == LineMessage::Kind::listen)
    throw Error(Code::corrupted, "not an answer about a network");
  const Place place{message->address, message->port};
  const auto found = std::ranges::find_if(requests_, [&place](const Request& request) {
    return request.place == place && !request.answer;
  });
  if (found == requests_.end()) return;
  found->answer = std::move(message);
  answer_line();
}

// All questions come from one socket here, so each gets an id of its own. An egress may leave some
// without an answer.
void Network::ask_resolver(std::string_view payload) {
  if (payload.size() < base::kAskerBytes + kDnsHeaderBytes) return;
  std::string message(payload.substr(base::kAskerBytes));
  const uint16_t id = ++newest_question_;
  questions_[id] = {std::string(payload.substr(0, base::kAskerBytes)), message.substr(0, kIdBytes)};
  questions_.erase(static_cast<uint16_t>(id - kMaxQuestions));
  message[0] = static_cast<char>(id >> 8);
  message[1] = static_cast<char>(id);
  send_question(resolver_.get(), message, mark_());
}

void Network::take_answers() {
  for (size_t i = 0; i < kMaxQuestions; ++i) {
    const auto buffer = base::io_buffer();
    const ssize_t size = recv(resolver_.get(), buffer.data(), kMaxAnswerBytes, MSG_DONTWAIT);
    if (size < 0) return;
    if (static_cast<size_t>(size) < kDnsHeaderBytes) continue;
    const auto id = static_cast<uint16_t>(static_cast<uint8_t>(buffer[0]) << 8 |
                                          static_cast<uint8_t>(buffer[1]));
    auto question = questions_.extract(id);
    if (question.empty() || !control_) continue;
    std::string payload = question.mapped().asker + question.mapped().id;
    payload.append(buffer.data() + kIdBytes, static_cast<size_t>(size) - kIdBytes);
    control_->send_datagram(payload);
  }
}

// As many free channels as connections may come at once, within the limit of all.
void Network::top_up() {
  while (stream_ && !stream_->broken() && free_ < kFree && incoming_.size() < base::kMaxRelayed) {
    auto one = std::make_shared<Incoming>(*this, *stream_);
    try {
      one->set_channel(stream_->open(request_text(base::outpost::kAccept), one));
    } catch (const Error&) {
      return begin_later();
    }
    incoming_.push_back(std::move(one));
    ++free_;
  }
}

void Network::forget(const Incoming* one) {
  const auto found =
      std::ranges::find_if(incoming_, [one](const auto& held) { return held.get() == one; });
  if (found == incoming_.end()) return;
  const auto last = std::move(*found);  // its own caller
  incoming_.erase(found);
  if (!last->is_free()) return top_up();
  --free_;
}

}  // namespace moorage::link
