#include "egress/control.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/parts.h"
#include "base/wire/protocol.h"

namespace moorage::egress {

namespace {

constexpr const char* kSeen = "seen ";
constexpr const char* kUse = "use ";
constexpr const char* kNeed = "need ";
constexpr const char* kPush = "push ";
constexpr const char* kStream = "stream ";
constexpr size_t kMaxRoots = 4 << 20;
constexpr std::chrono::milliseconds kUseInterval{1'000};

uint64_t number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Code::invalid_argument, "a number must follow");
  return number;
}

}  // namespace

struct Control::Client {
  Fd socket;
  std::optional<uint64_t> followed;  // the serial up to which it was sent all
  bool use_due = false;
  bool need_due = false;
  uint64_t asked = 0;  // the push up to which it was asked about all
  bool gone = false;
  std::unique_ptr<base::Watch> watch;
};

Control::Control(base::Loop& loop, Fd listener, Gateway& gateway)
    : loop_(loop),
      listener_(std::move(listener)),
      gateway_(gateway),
      sweep_timer_(loop),
      use_timer_(loop),
      watch_(loop, listener_.get(), EPOLLIN, [this](uint32_t) { accept_client(); }) {
  gateway_.ledger().on_new([this](const base::Sighting&) {
    for (Client& client : clients_) send_news(client);
  });
  gateway_.on_use_change([this] { on_use_change(); });
  gateway_.broker().on_need([this] { on_need(); });
  gateway_.broker().pushes().on_question([this] { on_push(); });
}

Control::~Control() {
  gateway_.ledger().on_new({});
  gateway_.on_use_change({});
  gateway_.broker().on_need({});
  gateway_.broker().pushes().on_question({});
}

void Control::accept_client() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket || clients_.size() >= kMaxClients) return;
  Client& client = clients_.emplace_back();
  client.socket = std::move(socket);
  client.watch = std::make_unique<base::Watch>(loop_, client.socket.get(), EPOLLIN,
                                               [this, &client](uint32_t events) {
                                                 if ((events & EPOLLOUT) != 0) send_news(client);
                                                 if ((events & ~EPOLLOUT) != 0) on_message(client);
                                               });
}

void Control::sweep() {
  clients_.remove_if([](const Client& client) { return client.gone; });
}

void Control::on_message(Client& client) {
  base::Received received;
  try {
    received = base::receive_with_fds(client.socket.get(), kMaxMessage, 1);
  } catch (const Error&) {
    client.gone = true;
  }
  if (received.bytes.empty()) client.gone = true;
  if (!client.gone) {
    try {
      answer(client, received.bytes, std::move(received.fds));
    } catch (const Error& error) {
      send(client, "error " + error.message());
    }
  }
  if (client.gone) sweep_timer_.start(std::chrono::milliseconds(0), [this] { sweep(); });
}

void Control::answer(Client& client, std::string_view text, std::vector<Fd> fds) {
  const std::string_view word = base::take_until(text, ' ');
  if (word == "hello") {
    send(client, "hello " + std::to_string(base::kProtocols.oldest) + " " +
                     std::to_string(base::kProtocols.newest) + " " + base::kRelease);
  } else if (word == "configure") {
    const size_t cut = gateway_.configure(gateway_options(base::read_network_settings(text)));
    send(client, "done " + std::to_string(cut));
  } else if (word == "line" && fds.size() == 1) {
    gateway_.set_line(std::move(fds[0]));
    send(client, "done");
  } else if (word == "authority") {
    gateway_.broker().set_authority(text);
    send(client, "done");
  } else if (word == "roots" && fds.size() == 1) {
    gateway_.broker().set_roots(base::read_up_to(fds[0].get(), kMaxRoots));
    send(client, "done");
  } else if (word == "secret" && fds.size() == 1) {
    gateway_.broker().secrets().fill(std::string(text), std::move(fds[0]));
    send(client, "done");
  } else if (word == "no-secret") {
    const std::string name(base::take_until(text, ' '));
    gateway_.broker().secrets().fail(name, std::string(text));
    send(client, "done");
  } else if (word == "push") {
    gateway_.broker().pushes().answer(base::read_push_answer(text));
    send(client, "done");
  } else if (word == "stream" && fds.size() == 1) {
    gateway_.broker().streams().give(number_in(text), std::move(fds[0]));
    send(client, "done");
  } else if (word == "no-stream") {
    const uint64_t number = number_in(base::take_until(text, ' '));
    gateway_.broker().streams().fail(number, std::string(text));
    send(client, "done");
  } else if (word == "seen") {
    list(client, text);
  } else if (word == "follow") {
    follow(client, text);
  } else {
    throw Error(Code::invalid_argument, "unknown message");
  }
}

void Control::list(Client& client, std::string_view text) {
  const uint64_t cgroup = number_in(text);
  std::vector<base::Sighting> found;
  for (const base::Sighting& sighting : gateway_.ledger().latest()) {
    if (sighting.cgroup == cgroup) found.push_back(sighting);
  }
  send(client, "sightings " + base::to_json(found));
}

void Control::follow(Client& client, std::string_view text) {
  const uint64_t serial = number_in(text);
  send(client, "done");
  client.followed = serial;
  client.use_due = client.need_due = true;
  send_news(client);
}

// As much as its socket takes; the ledger keeps the rest meanwhile.
void Control::send_news(Client& client) {
  if (!client.followed || client.gone) return;
  const auto& latest = gateway_.ledger().latest();
  auto next = std::ranges::upper_bound(latest, *client.followed, {}, &base::Sighting::serial);
  bool all = true;
  for (; all && next != latest.end(); ++next) {
    all = fits(client, kSeen + base::to_json(*next));
    if (all) client.followed = next->serial;
  }
  if (all && client.use_due) {
    all = fits(client, kUse + base::to_json(gateway_.use()));
    client.use_due = !all;
  }
  if (client.need_due) {
    for (const std::string& name : gateway_.broker().secrets().wanted())
      all = all && fits(client, kNeed + name);
    for (const auto& [number, one] : gateway_.broker().streams().wanted()) {
      all = all && fits(client, kStream + std::to_string(number) + " " + one.credential + " " +
                                    one.service + " " + one.path);
    }
    client.need_due = !all;
  }
  for (const base::PushQuestion& question : gateway_.broker().pushes().waiting(client.asked)) {
    all = all && fits(client, kPush + base::to_json(question));
    if (all) client.asked = question.id;
  }
  client.watch->set_events(all ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void Control::on_use_change() {
  if (use_timer_.running()) return;
  use_timer_.start(kUseInterval, [this] {
    for (Client& client : clients_) {
      client.use_due = true;
      send_news(client);
    }
  });
}

void Control::on_need() {
  for (Client& client : clients_) {
    client.need_due = true;
    send_news(client);
  }
}

void Control::on_push() {
  for (Client& client : clients_) send_news(client);
}

// Ends a client that has to read before it asks again.
void Control::send(Client& client, const std::string& text) {
  if (!fits(client, text)) end(client);
}

// Sends the message, unless the client has to read others first.
bool Control::fits(Client& client, const std::string& text) {
  if (client.gone) return true;
  const ssize_t sent =
      ::send(client.socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) return false;
  if (sent < 0) end(client);
  return true;
}

void Control::end(Client& client) {
  client.gone = true;
  shutdown(client.socket.get(), SHUT_RDWR);  // its watch sees the end, and removes it
}

}  // namespace moorage::egress
