// A sandbox's network without a sandbox: a thread in a network namespace of its own, with the
// warden's part that makes sockets, and a gateway outside with fake hosts on loopback. Needs root.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/network_settings.h"
#include "base/os/fd.h"

namespace moorage::egress_test {

// Runs work in the network namespace of the sandbox, and returns when it is done.
class Inside {
 public:
  Inside();
  ~Inside();
  void run(const std::function<void()>& work);
  // The warden's loop in that namespace, with this end of a line.
  void serve(Fd line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A DNS server outside, at 127.0.0.1:5353. Names it does not know do not exist.
class FakeDns {
 public:
  FakeDns();
  ~FakeDns();
  // Each question for the name gets the next of the answers, over and over.
  void set(const std::string& name, std::vector<std::string> answers);
  size_t questions() const { return questions_; }
  void answer_nothing(bool silent) { silent_ = silent; }

 private:
  void serve();
  std::string answer(std::string_view message);
  Fd socket_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> names_;
  std::map<std::string, size_t> next_;
  std::atomic<size_t> questions_ = 0;
  std::atomic<bool> silent_ = false;
  std::thread thread_;
};

// A TCP server outside: hands each connection to a thread.
class FakeHost {
 public:
  using Serve = std::function<void(int socket)>;
  FakeHost(const std::string& address, uint16_t port, Serve serve);
  ~FakeHost();
  size_t connections() const { return connections_; }

 private:
  Fd listener_;
  Serve serve_;
  std::atomic<size_t> connections_ = 0;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

// A gateway on a thread of its own, spoken to as the daemon does.
class Outside {
 public:
  Outside();
  ~Outside();
  std::string ask(const std::string& message, std::vector<int> fds = {});
  void configure(const base::NetworkSettings& settings);
  base::NetworkUse use();
  std::vector<base::Sighting> sightings();  // all that are kept
  Fd follow();                              // a client
  bool line_ended() const { return line_ended_; }

 private:
  std::vector<std::string> told();
  Fd control_;
  std::string path_;
  std::atomic<bool> line_ended_ = false;
  std::thread thread_;
  std::atomic<void*> loop_ = nullptr;
};

// All of it together; the line is set.
struct Network {
  Network();
  ~Network();
  void reconnect();  // a new line
  Inside inside;
  FakeDns dns;
  Outside outside;
  base::NetworkSettings settings;  // allows nothing; resolves by dns; 127.0.0.1 may be dialled
  void allow(const std::string& rule);
  void apply() { outside.configure(settings); }
};

// For use inside.
struct Answer {
  int code = -1;        // of DNS; -1: no answer in time
  std::string address;  // may be empty
  int reason = -1;      // the extended error
  std::string text;
};
Answer resolve(const std::string& name, int type = 1, bool tcp = false);
Fd dial(const std::string& address, uint16_t port);  // empty: refused
std::string read_all(const Fd& socket, int timeout_ms = 5000);
std::string read_some(const Fd& socket, int timeout_ms = 5000);

}  // namespace moorage::egress_test
