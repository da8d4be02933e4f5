#include "outpost/stream/network.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moorage::outpost {
namespace {

using base::LineMessage;
using base::RelayKind;
using base::RelayPlace;
using std::chrono::milliseconds;

constexpr size_t kMaxToWarden = 20'000;
constexpr size_t kMaxDatagram = 4096;  // longer questions are not answered (egress/dns_message.h)
constexpr int kDatagramsInARow = 64;
constexpr int kConnectWaitMs = 1000;
constexpr auto kPauseWithoutDescriptors = milliseconds(100);
constexpr const char* kRequest =
    "POST /moorage/network HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

class WireChannel : public base::ChannelSocket::Channel {
 public:
  explicit WireChannel(Wire wire) : wire_(wire) {}
  size_t room() const override { return wire_.room(); }
  void send(std::string_view bytes) override { wire_.send(bytes); }
  void end() override { wire_.end(); }
  void reset(const Error& reason) override { wire_.reset(reason); }
  void consumed(size_t bytes) override { wire_.consumed(bytes); }

 private:
  Wire wire_;
};

}  // namespace

// The channel `network`.
class Network::Control : public Channel {
 public:
  Control(Network& network, Wire wire) : network_(network), wire_(wire) {}
  ~Control() override {
    if (network_.control_ == this) network_.control_ = nullptr;
  }
  void data(std::string_view bytes) override {
    wire_.consumed(bytes.size());
    in_.add(bytes);
    try {
      while (const auto frame = in_.next()) network_.from_link(*frame);
    } catch (const Error& error) {
      wire_.reset(error);
    }
  }
  void writable() override {
    const size_t size = std::min(out_.size(), wire_.room());
    if (size > 0) wire_.send(std::string_view(out_).substr(0, size));
    out_.erase(0, size);
    if (out_.empty() && network_.udp_watch_) network_.udp_watch_->set_events(EPOLLIN);
  }
  bool has_room() const { return out_.empty() && wire_.room() > kMaxDatagram + 64; }
  void send(RelayKind kind, std::string_view payload) {
    out_ += relay_frame(kind, payload);
    writable();
  }
  void reset(const Error& reason) { wire_.reset(reason); }

 private:
  Network& network_;
  Wire wire_;
  base::RelayReader in_;
  std::string out_;  // answers of the warden are not dropped; link asked for each
};

// A channel `accept`.
class Network::Accepted : public Channel {
 public:
  Accepted(Network& network, Wire wire) : network_(network), wire_(wire) {
    ++network_.accepts_;
    network_.free_.push_back(this);
  }
  ~Accepted() override {
    --network_.accepts_;
    std::erase(network_.free_, this);
    if (socket_) socket_->on_gone();
  }
  void begin(Fd socket, const RelayPlace& place) {
    wire_.send(relay_frame(RelayKind::place, place_text(place)));
    Sockets& all = network_.sockets_;
    const auto at = all.emplace(all.end());
    *at = socket_ = std::make_shared<base::ChannelSocket>(
        network_.loop_, std::move(socket), std::make_unique<WireChannel>(wire_), [&all, at] {
          const auto last = std::move(*at);  // its own caller
          all.erase(at);
        });
  }
  void data(std::string_view bytes) override {
    if (!socket_) return wire_.reset(Error(Code::invalid_argument, "there is no connection yet"));
    socket_->on_data(bytes);
  }
  void ended() override {
    if (!socket_) return wire_.reset(Error(Code::conflict, "given up"));
    socket_->on_end();
  }
  void writable() override {
    if (socket_) socket_->on_room();
  }

 private:
  Network& network_;
  Wire wire_;
  std::shared_ptr<base::ChannelSocket> socket_;
};

Network::Network(base::Loop& loop, std::string warden_socket)
    : loop_(loop),
      warden_socket_(std::move(warden_socket)),
      waiting_(base::check(epoll_create1(EPOLL_CLOEXEC), "create an epoll set")),
      again_(loop) {
  waiting_watch_ =
      std::make_unique<base::Watch>(loop_, waiting_.get(), 0, [this](uint32_t) { accept_some(); });
}

Network::~Network() = default;

std::unique_ptr<Channel> Network::network(Wire wire) {
  if (!line_) give_line();
  if (control_) control_->reset(Error(Code::conflict, "another stream carries the network now"));
  auto control = std::make_unique<Control>(*this, wire);
  control_ = control.get();
  if (udp_watch_) udp_watch_->set_events(EPOLLIN);
  return control;
}

std::unique_ptr<Channel> Network::accept(Wire wire) {
  if (std::max(accepts_, sockets_.size()) >= base::kMaxRelayed)
    throw Error(Code::resource_exhausted, "too many connections of this sandbox at once");
  auto accepted = std::make_unique<Accepted>(*this, wire);
  watch_connections();
  return accepted;
}

void Network::give_line() {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
              "create a line");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  request_ = base::connect_unix(warden_socket_, kConnectWaitMs);
  const std::array fds{theirs.get()};
  base::send_with_fds(request_.get(), kRequest, fds);
  line_ = std::move(ours);
  line_watch_ = std::make_unique<base::Watch>(loop_, line_.get(), EPOLLIN,
                                              [this](uint32_t events) { on_line(events); });
}

// Its sockets inside end with it: a warden that ended has no sandbox any more.
void Network::end_line(const Error& reason) {
  line_watch_.reset();
  line_.reset();
  request_.reset();
  to_warden_.clear();
  udp_watch_.reset();
  udp_.reset();
  while (!listeners_.empty()) close_listener(RelayPlace(listeners_.begin()->first));
  if (control_) control_->reset(reason);
}

void Network::on_line(uint32_t events) {
  if ((events & EPOLLOUT) != 0) ask_warden();
  while (line_ && hear_warden()) {
  }
}

bool Network::hear_warden() {
  if (!base::wait_readable(line_.get(), 0)) return false;
  try {
    base::Received received =
        base::receive_with_fds(line_.get(), base::kMaxLineMessage, base::kMaxResolverSockets);
    if (received.bytes.empty()) throw Error(Code::unavailable, "the sandbox here has ended");
    take(received.bytes, std::move(received.fds));
    return true;
  } catch (const Error& error) {
    end_line(error);
    return false;
  }
}

void Network::take(std::string_view text, std::vector<Fd> fds) {
  if (text == base::kLineDns && fds.size() == base::kMaxResolverSockets) {
    request_.reset();
    udp_ = std::move(fds[0]);
    udp_watch_ = std::make_unique<base::Watch>(loop_, udp_.get(), EPOLLIN,
                                               [this](uint32_t) { read_questions(); });
    return keep_listener({base::kResolverInside, base::kResolverPort}, std::move(fds[1]));
  }
  auto answer = base::read_line_message(text);
  if (!answer || answer->kind == LineMessage::Kind::listen)
    throw Error(Code::corrupted, "the warden here broke the protocol of its line");
  if (answer->kind == LineMessage::Kind::listening && fds.size() == 1)
    keep_listener({answer->address, answer->port}, std::move(fds[0]));
  tell(*answer);
}

void Network::tell(const LineMessage& answer) {
  if (control_) control_->send(RelayKind::line, base::line_text(answer));
}

// ---- what link wants

void Network::from_link(const base::RelayFrame& frame) {
  if (frame.kind == RelayKind::datagram) return answer_question(frame.payload);
  const auto message = base::read_line_message(frame.payload);
  if (frame.kind != RelayKind::line || !message)
    throw Error(Code::invalid_argument, "not a message of a line");
  if (message->kind == LineMessage::Kind::refused)
    return close_listener({message->address, message->port});
  listen(*message);
}

void Network::listen(const LineMessage& request) {
  LineMessage answer = request;
  answer.kind = LineMessage::Kind::listening;
  if (listeners_.contains({request.address, request.port})) return tell(answer);
  if (!line_ || to_warden_.size() >= kMaxToWarden)
    throw Error(Code::resource_exhausted, "the warden here does not answer");
  to_warden_.push_back(base::line_text(request));
  ask_warden();
}

void Network::ask_warden() {
  while (!to_warden_.empty()) {
    const std::string& text = to_warden_.front();
    if (::send(line_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    to_warden_.pop_front();
  }
  // An end is found by reading.
  line_watch_->set_events(to_warden_.empty() ? uint32_t{EPOLLIN} : uint32_t{EPOLLIN | EPOLLOUT});
}

// ---- questions for the resolver

void Network::read_questions() {
  for (int i = 0; i < kDatagramsInARow; ++i) {
    if (!control_ || !control_->has_room()) return udp_watch_->set_events(0);
    std::array<char, kMaxDatagram + 1> bytes;
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    const ssize_t count = recvfrom(udp_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&peer), &size);
    if (count < 0) return;
    if (static_cast<size_t>(count) > kMaxDatagram || peer.sin_family != AF_INET) continue;
    std::string payload(base::kAskerBytes, '\0');
    memcpy(payload.data(), &peer.sin_addr, sizeof peer.sin_addr);
    memcpy(&payload[sizeof peer.sin_addr], &peer.sin_port, sizeof peer.sin_port);
    payload.append(bytes.data(), static_cast<size_t>(count));
    control_->send(RelayKind::datagram, payload);
  }
}

// One that cannot be sent is asked for again.
void Network::answer_question(const std::string& payload) const {
  if (payload.size() <= base::kAskerBytes || !udp_) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  memcpy(&to.sin_addr, payload.data(), sizeof to.sin_addr);
  memcpy(&to.sin_port, payload.data() + sizeof to.sin_addr, sizeof to.sin_port);
  sendto(udp_.get(), payload.data() + base::kAskerBytes, payload.size() - base::kAskerBytes,
         MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

// ---- connections

void Network::keep_listener(const RelayPlace& place, Fd socket) {
  close_listener(place);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = socket.get();
  base::check_allowance(epoll_ctl(waiting_.get(), EPOLL_CTL_ADD, socket.get(), &event),
                        "watch a listener", "fs.epoll.max_user_watches");
  places_[socket.get()] = place;
  listeners_[place] = std::move(socket);
}

// From the epoll set, too: the warden may keep the socket open.
void Network::close_listener(const RelayPlace& place) {
  const auto found = listeners_.find(place);
  if (found == listeners_.end()) return;
  epoll_ctl(waiting_.get(), EPOLL_CTL_DEL, found->second.get(), nullptr);
  places_.erase(found->second.get());
  listeners_.erase(found);
}

void Network::watch_connections() {
  const bool may = !free_.empty() && !again_.running();
  waiting_watch_->set_events(may ? uint32_t{EPOLLIN} : 0U);
}

void Network::accept_some() {
  std::array<epoll_event, 16> ready;
  const int count = epoll_wait(waiting_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count && !free_.empty(); ++i) {
    if (accept_at(ready[i].data.fd)) continue;
    again_.start(kPauseWithoutDescriptors, [this] { watch_connections(); });
    break;
  }
  watch_connections();
}

bool Network::accept_at(int listener) {
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  Accepted* accepted = free_.front();
  free_.pop_front();
  accepted->begin(std::move(socket), places_.at(listener));
  return true;
}

}  // namespace moorage::outpost
