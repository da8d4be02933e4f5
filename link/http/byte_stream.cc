#include "link/http/byte_stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/net/ip_address.h"

namespace moorage::link {
namespace {

constexpr size_t kMaxAddresses = 8;
constexpr size_t kPiece = 256 << 10;
// So that a host with a dead first address is still reached.
constexpr std::chrono::milliseconds kPerAddress{5'000};

int left_ms(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// getaddrinfo(3) has no deadline, so it gets a thread of its own that may outlive the caller.
struct Lookup {
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  int status = 0;
  std::vector<base::IpAddress> addresses;
};

void look_up(const std::shared_ptr<Lookup>& lookup, const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* raw = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(raw, freeaddrinfo);
  const std::lock_guard lock(lookup->mutex);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const auto address = base::address_of(*one->ai_addr);
    if (address && lookup->addresses.size() < kMaxAddresses) lookup->addresses.push_back(*address);
  }
  lookup->status = status;
  lookup->finished = true;
  lookup->done.notify_all();
}

std::vector<base::IpAddress> resolve(const std::string& host, Deadline deadline,
                                     const Cancel& cancel) {
  if (const auto address = base::parse_address(host)) return {*address};
  const auto lookup = std::make_shared<Lookup>();
  std::thread(look_up, lookup, host).detach();
  std::unique_lock lock(lookup->mutex);
  while (!lookup->finished && left_ms(deadline) > 0 && !cancel.cancelled())
    lookup->done.wait_for(lock, std::chrono::milliseconds(std::min(left_ms(deadline), 100)));
  if (!lookup->finished)
    throw Error(Code::unavailable, "cannot look up the host " + host + " in time");
  if (lookup->addresses.empty()) {
    const std::string why = lookup->status == 0 ? "no addresses" : gai_strerror(lookup->status);
    throw Error(Code::unavailable, "cannot look up the host " + host + ": " + why,
                "check the URL of the provider in the configuration and this host's DNS");
  }
  return lookup->addresses;
}

// Waits for one of the events; false: not before the deadline.
bool wait_for(int socket, short events, Deadline deadline, const Cancel& cancel) {
  for (;;) {
    std::array<pollfd, 2> polled{{{socket, events, 0}, {cancel.fd(), POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), left_ms(deadline));
    if (ready < 0 && errno != EINTR) base::throw_errno("wait for a provider");
    if (ready > 0 && polled[1].revents != 0) throw Error(Code::io, "cancelled");
    if (ready > 0) return true;
    if (left_ms(deadline) == 0) return false;
  }
}

// Empty and `error` set: not connected.
Fd connect_to(const base::IpAddress& address, uint16_t port, Deadline deadline,
              const Cancel& cancel, int& error) {
  sockaddr_storage storage{};
  const socklen_t size = address.to_socket(port, storage);
  Fd socket(base::check(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                        "make a socket"));
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  error = 0;
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&storage), size) == 0) return socket;
  error = errno;
  if (error != EINPROGRESS) return {};
  if (!wait_for(socket.get(), POLLOUT, deadline, cancel)) {
    error = ETIMEDOUT;
    return {};
  }
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? std::move(socket) : Fd();
}

Fd connect_socket(const Origin& origin, Deadline deadline, const Cancel& cancel) {
  int error = ETIMEDOUT;
  for (const base::IpAddress& address : resolve(origin.host, deadline, cancel)) {
    const Deadline until = std::min(deadline, after(kPerAddress));
    Fd socket = connect_to(address, origin.port, until, cancel, error);
    if (socket) return socket;
    if (left_ms(deadline) == 0) break;
  }
  throw Error(Code::unavailable,
              "cannot connect to " + origin.str() + ": " + std::string(std::strerror(error)),
              "check the URL of the provider in the configuration and this host's network");
}

}  // namespace

Cancel::Cancel() : fd_(base::check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "make an eventfd")) {}
void Cancel::cancel() const {
  const uint64_t one = 1;
  // It can fail only when it is already full, thus readable.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}
bool Cancel::cancelled() const { return base::wait_readable(fd_.get(), 0); }

Trust make_trust(const std::string& ca_file) {
  Trust trust(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!trust) throw Error(Code::resource_exhausted, "no memory for a TLS context");
  SSL_CTX_set_min_proto_version(trust.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(trust.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_verify_paths(trust.get());
  const bool loaded =
      ca_file.empty() || SSL_CTX_load_verify_locations(trust.get(), ca_file.c_str(), nullptr) == 1;
  ERR_clear_error();
  if (!loaded) {
    throw Error(Code::invalid_argument, "cannot read certificates of authorities in " + ca_file,
                "ca_file needs a readable file with certificates in PEM");
  }
  SSL_CTX_set_verify(trust.get(), SSL_VERIFY_PEER, nullptr);
  return trust;
}

ByteStream::ByteStream(const Origin& origin, const Trust& trust, Deadline deadline,
                       const Cancel& cancel)
    : cancel_(cancel), socket_(connect_socket(origin, deadline, cancel)) {
  if (!origin.tls) {
    stream_ = base::TlsStream::plain(socket_);
    return;
  }
  stream_ = base::TlsStream::connecting(socket_, trust.get(), origin.host, "");
  try {
    shake_hands(deadline);
  } catch (const Error& error) {
    throw Error(stream_.distrusts() ? Code::unsupported : Code::unavailable,
                "cannot make a TLS connection to " + origin.str() + ": " + error.message(),
                "if an authority of your own signs its certificate, name it in ca_file");
  }
}

void ByteStream::wait(short events, Deadline deadline) const {
  if (!wait_for(socket_.get(), events, deadline, cancel_))
    throw Error(Code::deadline_exceeded, "no answer in time");
}

void ByteStream::shake_hands(Deadline deadline) {
  for (;;) {
    const auto result = stream_.handshake();
    if (result == base::TlsStream::Result::done) return;
    if (result != base::TlsStream::Result::again) {
      throw Error(Code::io, stream_.error().empty() ? "the other side ended the connection"
                                                    : stream_.error());
    }
    wait(static_cast<short>(stream_.wants() == EPOLLIN ? POLLIN : POLLOUT), deadline);
  }
}

size_t ByteStream::read(std::span<char> buffer, Deadline deadline) {
  // Before the first wait, too: a server that always has more to send would never make us wait.
  if (cancel_.cancelled()) throw Error(Code::io, "cancelled");
  if (left_ms(deadline) == 0) throw Error(Code::deadline_exceeded, "no answer in time");
  for (;;) {
    size_t size = 0;
    const auto result = stream_.read(buffer, size);
    if (size > 0) return size;  // what comes after them shows at the next call
    if (result == base::TlsStream::Result::ended) return 0;
    if (result == base::TlsStream::Result::broken)
      throw Error(Code::io, "the connection broke: " + stream_.error());
    wait(static_cast<short>(stream_.wants() == EPOLLIN ? POLLIN : POLLOUT), deadline);
  }
}

void ByteStream::write(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    // TlsStream removes what it wrote from the front: small pieces keep that cheap.
    outgoing_.assign(bytes.substr(0, kPiece));
    bytes.remove_prefix(outgoing_.size());
    while (!outgoing_.empty()) {
      const auto result = stream_.write(outgoing_);
      if (result == base::TlsStream::Result::ended || result == base::TlsStream::Result::broken)
        throw Error(Code::io, "the connection broke: " + stream_.error());
      // Done: it took a part, perhaps all. Without TLS, wants() is then of an earlier call.
      if (result == base::TlsStream::Result::done) continue;
      wait(static_cast<short>(stream_.wants() == EPOLLIN ? POLLIN : POLLOUT), deadline);
    }
  }
}

bool ByteStream::is_quiet() const { return !base::wait_readable(socket_.get(), 0); }

}  // namespace moorage::link
