#include "inside.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>

#include "base/error.h"
#include "base/net/loopback.h"
#include "base/os/event_loop.h"
#include "egress/control.h"
#include "egress/dns_message.h"
#include "egress/gateway.h"
#include "warden/network.h"

namespace moorage::egress_test {
namespace {

sockaddr_in at(const std::string& address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1);
  return result;
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// The outside of the tests, too, has a network namespace of its own: they use ports like 443.
void enter_own_network() {
  static const bool done = [] {
    base::check(unshare(CLONE_NEWNET), "make a network namespace");
    base::set_up_sandbox_loopback();
    return true;
  }();
  REQUIRE(done);
}

std::string number(unsigned value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

unsigned number_at(const std::string& bytes, size_t at) {
  return static_cast<unsigned>(static_cast<uint8_t>(bytes.at(at))) << 8 |
         static_cast<uint8_t>(bytes.at(at + 1));
}

std::string question(const std::string& name, int type) {
  std::string bytes =
      number(77) + std::string("\x01\x00", 2) + number(1) + number(0) + number(0) + number(1);
  std::string label;
  for (const char c : name + ".") {
    if (c != '.') {
      label += c;
      continue;
    }
    bytes += static_cast<char>(label.size()) + label;
    label.clear();
  }
  bytes += std::string(1, '\0') + number(static_cast<unsigned>(type)) + number(1);
  return bytes + std::string(1, '\0') + number(41) + number(1232) + std::string(6, '\0');
}

Answer read_answer(const std::string& bytes, size_t question_size) {
  Answer answer;
  if (bytes.size() < 12) return answer;
  answer.code = static_cast<uint8_t>(bytes[3]) & 15;
  size_t at = question_size - 11;  // without the extension
  if (number_at(bytes, 6) == 1) {
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, bytes.data() + at + 12, text, sizeof text);
    answer.address = text;
    at += 16;
  }
  if (bytes.size() > at + 17) {
    answer.reason = static_cast<int>(number_at(bytes, at + 15));
    answer.text = bytes.substr(at + 17);
  }
  return answer;
}

}  // namespace

struct Inside::State {
  std::mutex mutex;
  std::condition_variable changed;
  const std::function<void()>* work = nullptr;
  std::exception_ptr error;
  bool over = false;
  Fd line;
  std::thread thread;
  std::thread warden;
  std::unique_ptr<base::Loop> loop;
  std::unique_ptr<warden::Network> network;
  Fd wake_read, wake_write;
};

Inside::Inside() : state_(std::make_unique<State>()) {
  enter_own_network();
  State& state = *state_;
  auto pipe = base::make_pipe();
  state.wake_read = std::move(pipe.read_end);
  state.wake_write = std::move(pipe.write_end);
  state.thread = std::thread([&state] {
    base::check(unshare(CLONE_NEWNET), "make a network namespace");
    base::set_up_sandbox_loopback();
    state.warden = std::thread([&state] {
      state.loop = std::make_unique<base::Loop>();
      state.network = std::make_unique<warden::Network>(*state.loop);
      const base::Watch wake(*state.loop, state.wake_read.get(), EPOLLIN, [&state](uint32_t) {
        char byte = 0;
        REQUIRE(read(state.wake_read.get(), &byte, 1) == 1);
        const std::lock_guard lock(state.mutex);
        if (byte == 'x') return state.loop->stop();
        state.network->set_line(std::move(state.line));
      });
      state.loop->run();
      state.network.reset();
    });
    std::unique_lock lock(state.mutex);
    for (;;) {
      state.changed.wait(lock, [&state] { return state.over || state.work != nullptr; });
      if (state.over) return;
      try {
        (*state.work)();
      } catch (...) {
        state.error = std::current_exception();
      }
      state.work = nullptr;
      state.changed.notify_all();
    }
  });
}

Inside::~Inside() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
  base::write_all(state_->wake_write.get(), "x");
  state_->warden.join();
}

void Inside::run(const std::function<void()>& work) {
  std::unique_lock lock(state_->mutex);
  state_->work = &work;
  state_->changed.notify_all();
  state_->changed.wait(lock, [this] { return state_->work == nullptr; });
  if (auto error = std::exchange(state_->error, nullptr)) std::rethrow_exception(error);
}

void Inside::serve(Fd line) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->line = std::move(line);
  }
  base::write_all(state_->wake_write.get(), "l");
}

FakeDns::FakeDns() : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  enter_own_network();
  socket_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = at("127.0.0.1", 5353);
  base::check(bind(socket_.get(), generic(address), sizeof address), "bind the resolver");
  thread_ = std::thread([this] { serve(); });
}

FakeDns::~FakeDns() {
  shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

void FakeDns::set(const std::string& name, std::vector<std::string> answers) {
  const std::lock_guard lock(mutex_);
  names_[name] = std::move(answers);
}

std::string FakeDns::answer(std::string_view message) {
  const auto question = egress::read_question(message);
  const std::lock_guard lock(mutex_);
  const auto known = names_.find(question->name);
  if (known == names_.end())
    return answer_refusal(*question, egress::DnsCode::no_such_name, egress::DnsReason::none, {});
  if (!question->asks_for_address()) return answer_no_data(*question);
  const auto& answers = known->second;
  const std::string& next = answers[next_[known->first]++ % answers.size()];
  return answer_address(*question, *base::parse_address(next), 1);
}

void FakeDns::serve() {
  char bytes[4096];
  sockaddr_storage peer{};
  for (;;) {
    socklen_t size = sizeof peer;
    const ssize_t got =
        recvfrom(socket_.get(), bytes, sizeof bytes, 0, reinterpret_cast<sockaddr*>(&peer), &size);
    if (got <= 0) return;
    ++questions_;
    if (silent_) continue;
    const std::string reply = answer({bytes, static_cast<size_t>(got)});
    sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&peer), size);
  }
}

FakeHost::FakeHost(const std::string& address, uint16_t port, Serve serve)
    : serve_(std::move(serve)) {
  enter_own_network();
  listener_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in place = at(address, port);
  base::check(bind(listener_.get(), generic(place), sizeof place), "bind a host");
  base::check(listen(listener_.get(), 128), "listen");
  thread_ = std::thread([this] {
    for (;;) {
      Fd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!accepted) return;
      ++connections_;
      threads_.emplace_back(
          [this, socket = std::make_shared<Fd>(std::move(accepted))] { serve_(socket->get()); });
    }
  });
}

FakeHost::~FakeHost() {
  shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  for (std::thread& thread : threads_) thread.join();
}

Outside::Outside() {
  signal(SIGPIPE, SIG_IGN);  // as moorage-egress does
  enter_own_network();
  char pattern[] = "/tmp/moorage-egress-XXXXXX";
  REQUIRE(mkdtemp(pattern) != nullptr);
  path_ = pattern;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (path_ + "/control").copy(address.sun_path, sizeof address.sun_path - 1);
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  base::check(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  base::check(listen(listener.get(), 8), "listen");
  std::promise<void> ready;
  thread_ = std::thread([this, &ready, listening = std::make_shared<Fd>(std::move(listener))] {
    base::Loop loop;
    loop_ = &loop;
    egress::Gateway gateway(loop, [this] { line_ended_ = true; });
    const egress::Control control(loop, std::move(*listening), gateway);
    ready.set_value();
    loop.run();
  });
  ready.get_future().wait();
  control_.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  base::check(connect(control_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              "connect");
}

Outside::~Outside() {
  static_cast<base::Loop*>(loop_.load())->stop();
  control_.reset();  // wakes it
  thread_.join();
  unlink((path_ + "/control").c_str());
  rmdir(path_.c_str());
}

std::string Outside::ask(const std::string& message, std::vector<int> fds) {
  base::send_with_fds(control_.get(), message, fds);
  if (!base::wait_readable(control_.get(), 10'000)) return "no answer";
  return base::receive_with_fds(control_.get(), 1 << 20).bytes;
}

void Outside::configure(const base::NetworkSettings& settings) {
  const std::string answer = ask("configure " + base::to_json(settings));
  INFO(answer);
  REQUIRE(answer.starts_with("done "));
}

// What a new follower is sent first: all sightings, then the use.
std::vector<std::string> Outside::told() {
  const Fd follower = follow();
  std::vector<std::string> all;
  while (all.empty() || all.back().starts_with("seen ")) {
    REQUIRE(base::wait_readable(follower.get(), 10'000));
    all.push_back(base::receive_with_fds(follower.get(), 1 << 16).bytes);
  }
  return all;
}

Fd Outside::follow() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (path_ + "/control").copy(address.sun_path, sizeof address.sun_path - 1);
  Fd follower(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  base::check(connect(follower.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              "connect");
  base::send_with_fds(follower.get(), "follow 0", {});
  REQUIRE(base::receive_with_fds(follower.get(), 1 << 16).bytes == "done");
  return follower;
}

base::NetworkUse Outside::use() {
  return base::read_network_use(told().back().substr(std::string_view("use ").size()));
}

std::vector<base::Sighting> Outside::sightings() {
  std::vector<std::string> messages = told();
  messages.pop_back();
  std::vector<base::Sighting> all;
  for (const std::string& message : messages)
    all.push_back(base::read_sighting(message.substr(std::string_view("seen ").size())));
  return all;
}

Network::Network() {
  settings.workspace = "web";
  settings.resolver.servers = {"127.0.0.1:5353"};
  settings.resolver.reachable = {"127.0.0.1"};
  reconnect();
}

Network::~Network() = default;

void Network::reconnect() {
  int ends[2];
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "make a line");
  Fd ours(ends[0]);
  // In this order: the end of the former line would be the end of the sandbox.
  REQUIRE(outside.ask("line", {ours.get()}) == "done");
  inside.serve(Fd(ends[1]));
  // The resolver answers once its sockets have come.
  for (int i = 0; i < 500; ++i) {
    bool answers = false;
    inside.run([&] { answers = resolve("ready.example").code >= 0; });
    if (answers) return;
    usleep(10'000);
  }
  FAIL("the resolver inside does not answer");
}

void Network::allow(const std::string& rule) {
  settings.policy.own.push_back(base::parse_rule(base::Verdict::allow, rule));
}

Answer resolve(const std::string& name, int type, bool tcp) {
  const std::string bytes = question(name, type);
  const sockaddr_in server = at("127.0.0.53", 53);
  const Fd socket(::socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), generic(server), sizeof server) != 0) return {};
  const std::string sent = tcp ? number(static_cast<unsigned>(bytes.size())) + bytes : bytes;
  if (send(socket.get(), sent.data(), sent.size(), MSG_NOSIGNAL) < 0) return {};
  if (!base::wait_readable(socket.get(), 15'000)) return {};
  char answer[2048];
  const ssize_t size = recv(socket.get(), answer, sizeof answer, 0);
  if (size <= 0) return {};
  const std::string text(answer, static_cast<size_t>(size));
  return read_answer(tcp ? text.substr(2) : text, bytes.size());
}

Fd dial(const std::string& address, uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = at(address, port);
  if (connect(socket.get(), generic(to), sizeof to) != 0) return {};
  return socket;
}

std::string read_some(const Fd& socket, int timeout_ms) {
  char bytes[65536];
  if (!base::wait_readable(socket.get(), timeout_ms)) return "(nothing came)";
  const ssize_t size = recv(socket.get(), bytes, sizeof bytes, 0);
  if (size < 0) return "(reset)";
  return {bytes, static_cast<size_t>(size)};
}

std::string read_all(const Fd& socket, int timeout_ms) {
  std::string all;
  for (;;) {
    const std::string piece = read_some(socket, timeout_ms);
    if (piece.empty()) return all;
    all += piece;
    if (piece == "(reset)" || piece == "(nothing came)") return all;
  }
}

}  // namespace moorage::egress_test
