#include "egress/dns_service.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace moorage::egress {
namespace {

constexpr int kDatagramsInARow = 64;  // then others get their turn
constexpr size_t kMaxHeldAnswers = 64 << 10;

SocketEnd end_of(const sockaddr_storage& peer) {
  SocketEnd end;
  if (const auto address = base::address_of(reinterpret_cast<const sockaddr&>(peer)))
    end.address = *address;
  end.port = ntohs(reinterpret_cast<const sockaddr_in&>(peer).sin_port);
  return end;
}

}  // namespace

struct DnsService::TcpClient {
  TcpClient(base::Loop& loop, Fd accepted) : socket(std::move(accepted)), timer(loop) {}
  Fd socket;
  Asker asker;
  std::string in;
  std::string out;
  std::unique_ptr<base::Watch> watch;
  base::Timer timer;
};

DnsService::DnsService(base::Loop& loop, Fd udp, Fd tcp, Answer answer)
    : loop_(loop),
      udp_(std::make_shared<Fd>(std::move(udp))),
      tcp_(std::move(tcp)),
      answer_(std::move(answer)),
      udp_watch_(loop, udp_->get(), EPOLLIN, [this](uint32_t) { read_datagrams(); }),
      tcp_watch_(loop, tcp_.get(), EPOLLIN, [this](uint32_t) { accept_client(); }) {}

DnsService::~DnsService() = default;

void DnsService::read_datagrams() {
  for (int i = 0; i < kDatagramsInARow; ++i) {
    std::array<char, kMaxDnsQuestion + 1> bytes;
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    const ssize_t size = recvfrom(udp_->get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&peer), &peer_size);
    if (size < 0) return;
    const auto question = read_question({bytes.data(), static_cast<size_t>(size)});
    if (!question) continue;
    answer_(*question, {end_of(peer), false},
            [socket = std::weak_ptr(udp_), peer, peer_size](const std::string& message) {
              const auto to = socket.lock();
              if (!to) return;
              // An answer that cannot be sent is asked for again.
              sendto(to->get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                     reinterpret_cast<const sockaddr*>(&peer), peer_size);
            });
  }
}

void DnsService::accept_client() {
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof peer;
  Fd socket(accept4(tcp_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  if (clients_.size() >= kMaxTcpClients) drop(clients_.front());
  auto client = std::make_shared<TcpClient>(loop_, std::move(socket));
  client->asker = {end_of(peer), true};
  const std::weak_ptr<TcpClient> weak(client);
  client->watch =
      std::make_unique<base::Watch>(loop_, client->socket.get(), EPOLLIN, [this, weak](uint32_t) {
        if (const auto one = weak.lock()) read_client(one);
      });
  client->timer.start(kPatienceTcp, [this, weak] {
    if (const auto one = weak.lock()) drop(one);
  });
  clients_.push_back(std::move(client));
}

void DnsService::drop(const std::shared_ptr<TcpClient>& client) {
  const auto keep = client;  // the argument may be the list's own
  keep->watch.reset();
  clients_.remove(keep);
}

void DnsService::read_client(const std::shared_ptr<TcpClient>& client) {
  const auto buffer = base::io_buffer();
  const ssize_t size = recv(client->socket.get(), buffer.data(), kMaxDnsQuestion, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return send_answers(*client);
  if (size <= 0) return drop(client);
  client->in.append(buffer.data(), static_cast<size_t>(size));
  take_questions(client);
}

void DnsService::take_questions(const std::shared_ptr<TcpClient>& client) {
  std::string& in = client->in;
  while (in.size() >= 2) {
    const size_t size =
        static_cast<size_t>(static_cast<uint8_t>(in[0])) << 8 | static_cast<uint8_t>(in[1]);
    if (size > kMaxDnsQuestion) return drop(client);
    if (in.size() < size + 2) return;
    const auto question = read_question(std::string_view(in).substr(2, size));
    in.erase(0, size + 2);
    if (!question) return drop(client);
    answer_(*question, client->asker, [weak = std::weak_ptr(client)](const std::string& message) {
      const auto to = weak.lock();
      if (!to || !to->watch || to->out.size() > kMaxHeldAnswers) return;
      to->out += static_cast<char>(message.size() >> 8);
      to->out += static_cast<char>(message.size());
      to->out += message;
      send_answers(*to);
    });
  }
}

void DnsService::send_answers(TcpClient& client) {
  if (!client.out.empty()) {
    const ssize_t size = send(client.socket.get(), client.out.data(), client.out.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size > 0) client.out.erase(0, static_cast<size_t>(size));
  }
  // A client that reads nothing is asked no more questions; its timer ends it.
  client.watch->set_events(client.out.empty() ? EPOLLIN : EPOLLOUT);
}

}  // namespace moorage::egress
