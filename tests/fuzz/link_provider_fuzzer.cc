// Everything that reads a provider's HTTP: client, answers in pieces, WebSockets, envd's streams,
// Daytona's logs, and both drivers. The first byte selects who asks; each piece of the rest answers
// one request. A piece's first byte says whether it is a whole answer, a body whose head is made
// here, or what follows the handshake of a WebSocket. No call outlasts its deadline by much.
// Nothing here really waits: virtual_time.h.
#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <list>

#include "base/digest.h"
#include "base/os/files.h"
#include "base/wire/text_stream.h"
#include "fuzz.h"
#include "link/driver.h"
#include "link/drivers/envd_stream.h"
#include "link/drivers/session_stream.h"
#include "link/http/websocket.h"
#include "virtual_time.h"

namespace moorage {
namespace {

constexpr std::chrono::seconds kDeadline{30};
constexpr std::chrono::minutes kMuchLater{3};  // a WebSocket has 40 s for a sign of life
constexpr const char* kNothingMore = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

struct Answer {
  enum class Form { whole, body, messages } form = Form::whole;
  bool stays = false;  // the connection, after it
  std::string bytes;
};

// Each whole request gets the next answer.
class Provider : public fuzz::OtherEnds {
 public:
  static link::Origin origin() { return {false, "127.0.0.1", 80, ""}; }
  void set_answers(std::deque<Answer> answers) {
    answers_ = std::move(answers);
    clients_.clear();
  }
  void connected(base::Fd socket) override { clients_.push_back({std::move(socket), {}}); }
  bool act() override {
    bool heard = false;
    for (auto client = clients_.begin(); client != clients_.end();) {
      const auto one = client++;
      std::array<char, 64 << 10> piece;
      const ssize_t count = recv(one->socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) continue;
      heard = true;
      if (count <= 0 || !hear(*one, {piece.data(), static_cast<size_t>(count)}))
        clients_.erase(one);
    }
    return heard;
  }

 private:
  struct Client {
    base::Fd socket;
    std::string held;
  };

  // False: it is left.
  bool hear(Client& client, std::string_view bytes) {
    client.held.append(bytes);
    const size_t end = client.held.find("\r\n\r\n");
    if (end == std::string::npos) return true;
    const std::string head = client.held.substr(0, end + 4);
    const size_t at = head.find("Content-Length: ");
    const size_t size = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
    if (client.held.size() < head.size() + size) return true;
    client.held.erase(0, head.size() + size);
    return answer(client, head);
  }
  bool answer(const Client& client, const std::string& head) {
    Answer next{Answer::Form::whole, true, kNothingMore};
    if (!answers_.empty()) {
      next = std::move(answers_.front());
      answers_.pop_front();
    }
    const std::string bytes = text_of(next, head);
    const bool sent = send(client.socket.get(), bytes.data(), bytes.size(),
                           MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
    // Half of it, as a close would discard what the client has not read.
    if (sent && !next.stays) shutdown(client.socket.get(), SHUT_WR);
    return sent;
  }
  static std::string text_of(const Answer& answer, const std::string& head) {
    if (answer.form == Answer::Form::whole) return answer.bytes;
    if (answer.form == Answer::Form::body) {
      return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(answer.bytes.size()) +
             "\r\n\r\n" + answer.bytes;
    }
    const std::string name = "Sec-WebSocket-Key: ";
    const size_t at = head.find(name);
    if (at == std::string::npos) return kNothingMore;
    const std::string key = head.substr(at + name.size(), 24);
    std::string raw;
    const std::string hex = base::sha1_hex(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    for (size_t i = 0; i < hex.size(); i += 2)
      raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Accept: " +
           base::base64_text(raw) + "\r\n\r\n" + answer.bytes;
  }

  std::deque<Answer> answers_;
  std::list<Client> clients_;
};

std::deque<Answer> answers_of(fuzz::Script& script) {
  std::deque<Answer> answers;
  while (!script.over() && answers.size() < 32) {
    const uint8_t form = script.byte();
    // Two bytes of size: a session's answers are longer than a piece.
    const size_t size = script.byte() | static_cast<size_t>(script.byte()) << 8;
    answers.push_back(
        {static_cast<Answer::Form>(form % 3), (form & 128) != 0, std::string(script.take(size))});
  }
  return answers;
}

link::Trust trust() {
  static const link::Trust made = link::make_trust("");
  return made;
}

void ask_plainly(const link::Origin& origin, const link::Cancel& cancel, bool whole) {
  link::HttpClient client(origin, trust(), cancel, {4096, 16 << 10});
  for (int times = 0; times < 3; ++times) {
    if (whole) {
      const auto response = client.exchange({}, link::after(kDeadline));
      fuzz::require(response.body.size() <= 16 << 10, "a body has its limit");
      fuzz::require(response.status >= 101 && response.status < 1000, "a status is one");
      continue;
    }
    const auto reader = client.open_stream({}, link::after(kDeadline));
    std::array<char, 100> piece;
    while (reader->read(piece, link::after(kDeadline)) > 0) continue;
  }
}

void listen(const link::Origin& origin, const link::Cancel& cancel) {
  link::HttpClient client(origin, trust(), cancel);
  link::HttpResponse refusal;
  const auto socket = link::WebSocket::open(client, {}, link::after(kDeadline), refusal);
  std::string bytes;
  while (socket && socket->receive(bytes)) {
    fuzz::require(!bytes.empty() && bytes.size() <= 128 << 10, "a piece has its limit");
  }
}

link::RunApis apis_of(const link::Origin& origin, const link::Cancel& cancel) {
  const link::ApiOptions options{"fuzzed", origin, trust(), {{"X-Key", "secret"}}};
  link::RunApis apis{std::make_unique<link::ProviderApi>(options, cancel),
                     std::make_unique<const link::Cancel>(), nullptr};
  apis.release = std::make_unique<link::ProviderApi>(options, *apis.never);
  return apis;
}

void run_program(const link::Origin& origin, const link::Cancel& cancel, bool envd) {
  std::string output;
  if (envd) {
    link::EnvdStream stream(apis_of(origin, cancel), {{"/bin/true"}, true}, link::after(kDeadline));
    while (stream.receive_until_end(output, link::after(kDeadline))) continue;
    stream.release();
    return;
  }
  link::SessionStream stream(apis_of(origin, cancel), {"/bin/true"}, link::after(kDeadline));
  fuzz::refused([&] {
    while (stream.receive(output)) continue;
  });
  stream.release();
}

void drive(const std::string& provider, const std::string& url, uint8_t what) {
  const auto driver =
      link::make_driver(provider, {R"({"api_url":")" + url + R"(","sandbox_url":")" + url +
                                       R"(","toolbox_url":")" + url + R"(","on_stop":"pause"})",
                                   "secret"});
  const link::Labels labels{{"moorage-store", "ab12"}, {"moorage-sandbox", "sb_1"}};
  const link::Machine machine{"i1", link::MachineState::running, labels, "/d"};
  const auto until = link::after(kDeadline);
  if (what == 0) {
    for (const link::Machine& one : driver->find(labels, until))
      fuzz::require(one.labels.at("moorage-sandbox") == "sb_1", "only our machines are found");
  }
  if (what == 1) driver->make(labels, until);
  if (what == 2) driver->state(machine, until);
  if (what == 3) driver->extend(machine, std::chrono::seconds(600), until);
  if (what == 4) driver->pause(machine, until);
  if (what == 5) driver->resume(machine, until);
  if (what == 6) driver->end(machine, until);
  if (what != 7) return;
  const std::string path = fuzz::scratch_directory() + "/program";
  const base::Fd file = base::open_file(path, O_RDWR | O_CREAT, 0600);
  driver->put(machine, {"/d/program", 0755, file.get(), base::sha256_hex("")}, until);
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  static Provider& provider = *[] {
    signal(SIGPIPE, SIG_IGN);  // as moorage-link does
    // Reading the system's authorities takes seconds here.
    setenv("SSL_CERT_FILE", "/dev/null", 1);
    auto* const made = new Provider;
    fuzz::set_other_ends(*made);
    return made;
  }();
  fuzz::Script script(data, size);
  const uint8_t what = script.byte();
  provider.set_answers(answers_of(script));
  const link::Cancel cancel;
  const link::Origin origin = Provider::origin();
  const auto began = std::chrono::steady_clock::now();
  fuzz::refused([&] {
    if (what % 8 < 2) return ask_plainly(origin, cancel, what % 8 == 0);
    if (what % 8 == 2) return listen(origin, cancel);
    if (what % 8 < 5) return run_program(origin, cancel, what % 8 == 3);
    drive(what % 8 == 5 ? "e2b" : "daytona", origin.str(), what / 8 % 8);
  });
  fuzz::require(std::chrono::steady_clock::now() - began < kMuchLater, "no call waits for ever");
  return 0;
}
