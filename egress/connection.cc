#include "egress/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/net/host_name.h"

namespace moorage::egress {
namespace {

constexpr std::chrono::milliseconds kPatienceRefused{5'000};  // for the client to read why
constexpr size_t kLittle = 16 << 10;  // if less comes at once, copying it is cheaper

void reset_on_close(const Fd& socket) {
  if (!socket) return;
  const linger now{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

Judge judge_of_port(uint16_t port) {
  if (port == 443) return Judge::tls_name;
  return port == 80 ? Judge::http_host : Judge::none;
}

Connection::Connection(base::Loop& loop, Meter& meter, Owner& owner, Fd client, Host host)
    : Carrier(std::move(host)),
      loop_(loop),
      meter_(meter),
      owner_(owner),
      timer_(loop),
      pause_(loop) {
  client_.socket = std::move(client);
}

void Connection::start() {
  const int on = 1;
  setsockopt(client_.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const Judge judge = judge_of_port(host_.port);
  if (judge == Judge::tls_name) hello_ = std::make_unique<ClientHello>();
  if (judge == Judge::http_host) {
    gate_ = std::make_unique<HttpGate>(host_.name, host_.port, [this](auto method, auto target) {
      return owner_.why_refused(host_, method, target);
    });
  }
  client_.watch = std::make_unique<base::Watch>(loop_, client_.socket.get(), EPOLLIN,
                                                [this](uint32_t events) { on_client(events); });
  timer_.start(kPatienceFirst, [this] { abort(); });
  if (judge == Judge::none) begin_dialing();
}

Connection::~Connection() = default;

void Connection::begin_dialing() {
  if (asked_way_) return;
  asked_way_ = true;
  timer_.stop();
  owner_.find_way(*this);
}

void Connection::dial(DialTarget target) {
  dialer_ = std::make_unique<Dialer>(loop_, std::move(target), [this](Dialed dialed) {
    if (!dialed.socket) return fail(dialed.error);
    dialer_.reset();
    server_.socket = std::move(dialed.socket);
    server_.watch = std::make_unique<base::Watch>(loop_, server_.socket.get(), EPOLLIN,
                                                  [this](uint32_t events) { on_server(events); });
    if (!dialed.first.empty()) take_from_server(dialed.first);
    flush(server_);
    update();
  });
}

void Connection::fail(const std::string& why) {
  owner_.on_unreachable(*this, why);
  abort();
}

void Connection::abort() {
  reset_on_close(client_.socket);
  reset_on_close(server_.socket);
  finish();
}

// The owner destroys this in a turn of its own: a caller up the stack may still use it.
void Connection::finish() {
  if (ended_) return;
  ended_ = true;
  dialer_.reset();
  client_.watch.reset();
  server_.watch.reset();
  client_.socket.reset();
  server_.socket.reset();
  pause_.stop();
  timer_.start(std::chrono::milliseconds(0), [this] { owner_.on_end(*this); });
}

// What the client still sends is read and dropped: a close with unread bytes would be a reset,
// which can overtake the answer.
void Connection::refuse(std::string_view answer, const std::string& why) {
  if (closing_) return;
  closing_ = true;
  owner_.on_refused(*this, why);
  server_ = {};
  dialer_.reset();
  give(client_, answer);
  client_.shut_after_held = true;
  timer_.start(kPatienceRefused, [this] { abort(); });
}

void Connection::on_client(uint32_t events) {
  if ((events & EPOLLERR) != 0) return abort();
  if ((events & EPOLLOUT) != 0) flush(client_);
  if (!ended_ && (events & (EPOLLIN | EPOLLHUP)) != 0) read_from(client_, server_);
  update();
}

void Connection::on_server(uint32_t events) {
  if ((events & EPOLLERR) != 0) return abort();
  if ((events & EPOLLOUT) != 0) flush(server_);
  if (!ended_ && (events & (EPOLLIN | EPOLLHUP)) != 0) read_from(server_, client_);
  update();
}

void Connection::read_from(Side& from, Side& to) {
  if (from.read_all || !to.takes_more()) return;
  if (!passes_unread(from)) to.siphon.reset();
  if (to.siphon) return siphon_from(from, to);
  const auto buffer = base::io_buffer();
  const ssize_t size = recv(from.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) abort();
    return;
  }
  if (size == 0) {
    from.read_all = true;
    return;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
  meter_.count(&to == &client_, bytes.size());
  if (closing_) return;
  if (&from == &client_) {
    take_from_client(bytes);
  } else {
    take_from_server(bytes);
  }
  const bool is_much = bytes.size() == buffer.size();
  if (is_much && !ended_ && to.socket && passes_unread(from)) to.siphon = Siphon::make();
}

// Whether nobody needs to see what comes from there, and any amount may come at once.
bool Connection::passes_unread(const Side& from) const {
  if (closing_ || hello_ || meter_.counts_closely()) return false;
  if (!gate_) return true;
  return &from == &client_ ? !gate_->reads_requests() : !gate_->reads_answers();
}

void Connection::siphon_from(Side& from, Side& to) {
  const ssize_t size = to.siphon->fill(from.socket);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) abort();
    return;
  }
  from.read_all = size == 0;
  meter_.count(&to == &client_, static_cast<size_t>(size));
  flush(to);
  if (!to.waits() && static_cast<size_t>(size) < kLittle) to.siphon.reset();
}

void Connection::take_from_client(std::string_view bytes) {
  if (hello_) return judge_hello(bytes);
  if (!gate_) return give(server_, bytes);
  const std::string passed = gate_->from_client(bytes);
  if (!gate_->refusal().empty()) return refuse(gate_->refusal(), gate_->why());
  if (passed.empty()) return;
  give(server_, passed);
  begin_dialing();
}

void Connection::take_from_server(std::string_view bytes) {
  if (gate_) {
    const std::string released = gate_->from_server(bytes);
    if (!gate_->refusal().empty()) return refuse(gate_->refusal(), gate_->why());
    if (!released.empty()) give(server_, released);
  }
  give(client_, bytes);
}

void Connection::judge_hello(std::string_view bytes) {
  server_.held += bytes;
  const ClientHello::State state = hello_->add(bytes);
  if (state == ClientHello::State::incomplete) return;
  if (state == ClientHello::State::invalid) return refuse({}, "not TLS, which port 443 is for");
  const auto& sent = hello_->server_name();
  if (!sent || base::host_name_on_wire(*sent) != host_.name) {
    return refuse(unrecognized_name_alert(),
                  sent ? "TLS named another host: " + *sent : "TLS named no host (no SNI)");
  }
  hello_.reset();
  begin_dialing();
}

// Writes what the socket takes now; returns how many bytes.
size_t Connection::write_to(const Side& to, std::string_view bytes) {
  if (ended_ || !to.socket || bytes.empty()) return 0;
  const ssize_t size =
      send(to.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size >= 0) return static_cast<size_t>(size);
  if (errno != EAGAIN && errno != EINTR) abort();
  return 0;
}

void Connection::give(Side& to, std::string_view bytes) {
  if (!to.waits()) bytes.remove_prefix(write_to(to, bytes));
  to.held += bytes;
}

void Connection::flush(Side& to) {
  if (to.siphon && !to.siphon->drain(to.socket)) return abort();
  if (to.siphon && to.siphon->held() > 0) return;
  to.held.erase(0, write_to(to, to.held));
  if (to.held.empty()) to.held.shrink_to_fit();
}

// Decides what to wait for, from the state of both sides.
void Connection::update() {
  if (ended_) return;
  const int64_t wait_ms = meter_.pause_ms();
  if (meter_.used_up()) return abort();
  const auto want = [&](Side& side, const Side& other) {
    if (!side.watch) return;
    const bool reads = !side.read_all && other.takes_more() && wait_ms == 0;
    side.watch->set_events((reads ? EPOLLIN : 0U) | (side.waits() ? EPOLLOUT : 0U));
  };
  want(client_, server_);
  want(server_, client_);
  if (wait_ms > 0) pause_.start(std::chrono::milliseconds(wait_ms), [this] { update(); });
  const auto pass_end = [](const Side& from, Side& to) {
    const bool last = from.read_all || to.shut_after_held;
    if (!last || to.waits() || to.shut || !to.socket) return;
    to.shut = true;
    shutdown(to.socket.get(), SHUT_WR);
  };
  pass_end(client_, server_);
  pass_end(server_, client_);
  const bool nothing_to_do = client_.read_all && (closing_ || !asked_way_);
  if (nothing_to_do || (client_.shut && server_.shut)) finish();
}

}  // namespace moorage::egress
