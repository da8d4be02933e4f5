#include "link/drivers/scripted_server.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moorage::link_test {
namespace {

class Plain : public Connection {
 public:
  explicit Plain(int socket) : socket_(socket) {}
  bool write(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t size = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }
  std::string read() override {
    std::string piece(64 << 10, '\0');
    const ssize_t size = ::recv(socket_, piece.data(), piece.size(), 0);
    piece.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return piece;
  }

 private:
  int socket_;
};

class Encrypted : public Connection {
 public:
  Encrypted(int socket, SSL_CTX* context) : ssl_(SSL_new(context), SSL_free) {
    SSL_set_fd(ssl_.get(), socket);
    accepted_ = SSL_accept(ssl_.get()) == 1;
  }
  bool write(std::string_view bytes) override {
    return accepted_ && SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  std::string read() override {
    std::string piece(16 << 10, '\0');
    const int size =
        accepted_ ? SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size())) : 0;
    piece.resize(static_cast<size_t>(std::max(size, 0)));
    return piece;
  }

 private:
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  bool accepted_ = false;
};

std::shared_ptr<ssl_ctx_st> context_of(const base::IssuedCertificate& own) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  BIO* bio = BIO_new_mem_buf(own.certificate.data(), static_cast<int>(own.certificate.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  bio = BIO_new_mem_buf(own.key.data(), static_cast<int>(own.key.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  SSL_CTX_use_certificate(context.get(), certificate);
  SSL_CTX_use_PrivateKey(context.get(), key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

size_t content_length(const std::string& head) {
  const size_t at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
}

}  // namespace

bool Received::is(std::string_view method_and_path) const {
  return head.starts_with(method_and_path) &&
         (head[method_and_path.size()] == ' ' || head[method_and_path.size()] == '?');
}

ScriptedServer::ScriptedServer(Handler handler, const base::IssuedCertificate* certificate)
    : handler_(std::move(handler)),
      tls_(certificate == nullptr ? nullptr : context_of(*certificate)),
      listener_(base::check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a socket")),
      stop_(base::check(eventfd(0, EFD_CLOEXEC), "make an eventfd")) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  base::check(::bind(listener_.get(), raw, size), "bind a socket");
  base::check(::listen(listener_.get(), 64), "listen");
  base::check(::getsockname(listener_.get(), raw, &size), "read the name of a socket");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] {
    for (;;) {
      std::array<pollfd, 2> polled{{{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      ::poll(polled.data(), polled.size(), -1);
      if (polled[1].revents != 0) return;
      Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) continue;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket.get());
      connections_.emplace_back([this, fd = socket.release()] { serve(Fd(fd)); });
    }
  });
}

ScriptedServer::~ScriptedServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }
  for (std::thread& one_thread : connections_) one_thread.join();
}

std::string ScriptedServer::url() const {
  return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
}

void ScriptedServer::serve(Fd socket) {
  std::unique_ptr<Connection> connection;
  if (tls_) {
    connection = std::make_unique<Encrypted>(socket.get(), tls_.get());
  } else {
    connection = std::make_unique<Plain>(socket.get());
  }
  std::string held;
  for (bool go_on = true; go_on;) {
    size_t end = 0;
    while ((end = held.find("\r\n\r\n")) == std::string::npos) {
      const std::string piece = connection->read();
      if (piece.empty()) break;
      held += piece;
    }
    if (end == std::string::npos) break;
    Received received{held.substr(0, end + 4), {}};
    held.erase(0, end + 4);
    const size_t size = content_length(received.head);
    while (held.size() < size) {
      const std::string piece = connection->read();
      if (piece.empty()) break;
      held += piece;
    }
    received.body = held.substr(0, size);
    held.erase(0, size);
    ++requests_;
    go_on = handler_(received, *connection);
  }
  const std::lock_guard lock(mutex_);
  sockets_.remove(socket.get());
}

std::string answer(int status, std::string_view body, std::string_view headers) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + std::string(headers) +
         "\r\n" + std::string(body);
}

}  // namespace moorage::link_test
