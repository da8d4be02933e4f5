#include "backends/egress_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/parts.h"
#include "base/wire/protocol.h"

namespace moorage::backends {
namespace {

constexpr size_t kMaxAnswer = 256 << 10;
constexpr int kSendBuffer = 2 << 20;  // one message holds all rules
constexpr int kBacklog = 8;
constexpr time_t kSendPatienceS = 5;

// The directory of a sandbox may be deeper than sun_path allows: bound and connected through its
// descriptor.
sockaddr_un address_of(const std::string& path, Fd& directory) {
  const size_t slash = path.rfind('/');
  const std::string parent = path.substr(0, slash);
  directory = Fd(base::check(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC),
                             "open the directory " + parent));
  const std::string reached = base::proc_path(directory.get()) + path.substr(slash);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  reached.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

Fd make_socket() {
  return Fd(base::check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "create a socket"));
}

}  // namespace

Fd listen_egress(const std::string& path) {
  if (unlink(path.c_str()) < 0 && errno != ENOENT) base::throw_errno("remove " + path);
  Fd directory;
  const sockaddr_un address = address_of(path, directory);
  Fd listener = make_socket();
  base::check(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              "bind " + path);
  base::check(chmod(path.c_str(), 0600), "set the mode of " + path);
  base::check(listen(listener.get(), kBacklog), "listen on " + path);
  return listener;
}

EgressClient::EgressClient(const std::string& path) : socket_(make_socket()) {
  Fd directory;
  const sockaddr_un address = address_of(path, directory);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer);
  const timeval patience{kSendPatienceS, 0};  // also of connect, while its backlog is full
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return;
  if (errno == ECONNREFUSED) throw Error(Code::unavailable, "no moorage-egress runs there");
  base::throw_errno("connect to " + path);
}

std::string EgressClient::receive(std::chrono::milliseconds deadline) {
  if (!base::wait_readable(socket_.get(), static_cast<int>(deadline.count())))
    throw Error(Code::deadline_exceeded, "moorage-egress does not answer");
  std::string bytes = base::receive_with_fds(socket_.get(), kMaxAnswer, 0).bytes;
  if (bytes.empty()) throw Error(Code::unavailable, "moorage-egress ended");
  return bytes;
}

std::string EgressClient::ask(const std::string& message, const std::string& expected,
                              std::chrono::milliseconds deadline, std::span<const int> fds) {
  base::send_with_fds(socket_.get(), message, fds);
  const std::string answer = receive(deadline);
  std::string_view rest = answer;
  const std::string_view word = base::take_until(rest, ' ');
  if (word == expected) return std::string(rest);
  if (word == "error") throw Error(Code::io, "moorage-egress: " + std::string(rest));
  throw Error(Code::corrupted,
              "moorage-egress answered \"" + std::string(word.substr(0, 50)) + "\"");
}

bool EgressClient::shares_a_protocol(std::chrono::milliseconds deadline) {
  const std::string answer = ask("hello", "hello", deadline);
  std::string_view rest = answer;
  const auto next_number = [&rest] {
    const std::string_view word = base::take_until(rest, ' ');
    int number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number);
    return number;
  };
  base::Protocols theirs;
  theirs.oldest = next_number();
  theirs.newest = next_number();
  return base::common_protocol(base::kProtocols, theirs).has_value();
}

size_t EgressClient::configure(const base::NetworkSettings& settings,
                               std::chrono::milliseconds deadline) {
  const std::string answer = ask("configure " + base::to_json(settings), "done", deadline);
  size_t cut = 0;
  std::from_chars(answer.data(), answer.data() + answer.size(), cut);
  return cut;
}

void EgressClient::set_line(int line, std::chrono::milliseconds deadline) {
  ask("line", "done", deadline, {&line, 1});
}

void EgressClient::set_authorities(const std::string& pem, int roots,
                                   std::chrono::milliseconds deadline) {
  ask("authority " + pem, "done", deadline);
  ask("roots", "done", deadline, {&roots, 1});
}

void EgressClient::give_secret(const std::string& credential, int pipe,
                               std::chrono::milliseconds deadline) {
  ask("secret " + credential, "done", deadline, {&pipe, 1});
}

void EgressClient::refuse_secret(const std::string& credential, const std::string& why,
                                 std::chrono::milliseconds deadline) {
  ask("no-secret " + credential + " " + why, "done", deadline);
}

void EgressClient::answer_push(const base::PushAnswer& answer, std::chrono::milliseconds deadline) {
  ask("push " + base::to_json(answer), "done", deadline);
}

void EgressClient::give_stream(uint64_t number, int stream, std::chrono::milliseconds deadline) {
  ask("stream " + std::to_string(number), "done", deadline, {&stream, 1});
}

void EgressClient::refuse_stream(uint64_t number, const std::string& why,
                                 std::chrono::milliseconds deadline) {
  ask("no-stream " + std::to_string(number) + " " + why, "done", deadline);
}

std::vector<base::Sighting> EgressClient::seen_by(uint64_t cgroup,
                                                  std::chrono::milliseconds deadline) {
  return base::read_sightings(ask("seen " + std::to_string(cgroup), "sightings", deadline));
}

void EgressClient::follow(uint64_t after, std::chrono::milliseconds deadline) {
  ask("follow " + std::to_string(after), "done", deadline);
}

std::optional<EgressClient::News> EgressClient::next() {
  if (!base::wait_readable(socket_.get(), 0)) return std::nullopt;
  const std::string message = receive(std::chrono::milliseconds(0));
  std::string_view rest = message;
  const std::string_view word = base::take_until(rest, ' ');
  if (word == "seen") return base::read_sighting(rest);
  if (word == "use") return base::read_network_use(rest);
  if (word == "need") return Need{std::string(rest)};
  if (word == "push") return base::read_push_question(rest);
  if (word == "stream") {
    Stream stream;
    const std::string_view number = base::take_until(rest, ' ');
    std::from_chars(number.data(), number.data() + number.size(), stream.number);
    stream.credential = base::take_until(rest, ' ');
    stream.service = base::take_until(rest, ' ');
    stream.path = rest;
    return stream;
  }
  throw Error(Code::corrupted, "moorage-egress sent what nobody asked for");
}

}  // namespace moorage::backends
