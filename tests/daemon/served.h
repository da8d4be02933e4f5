// A real server on its own socket, with routes from the test, and a client that sees every byte on
// the wire.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/os/fd.h"
#include "daemon/http/dispatcher.h"
#include "daemon/http/router.h"
#include "daemon/http/server.h"
#include "patience.h"
#include "state_db/store.h"

namespace moorage::daemon {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Answer {
  int status = 0;
  std::string head;
  std::string body;
  bool whole = false;                                 // the body is complete
  std::string header(const std::string& name) const;  // lower case name
};

// A client connection: sends exactly the given bytes, and reads answers.
class Wire {
 public:
  explicit Wire(const std::string& socket);
  void send(std::string_view bytes);
  bool try_send(std::string_view bytes);           // false: the peer is gone
  Answer read_answer();                            // one answer, whole or cut off
  std::string read_some(int timeout_ms = 10'000);  // empty: closed
  bool closed_within(int timeout_ms);              // reads and drops remaining bytes
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool fill();
  std::string take(size_t bytes, bool& whole);
  std::string take_line(bool& whole);
  base::Fd fd_;
  std::string buffer_;
};

class Served {
 public:
  explicit Served(Limits limits = {});
  ~Served();
  Router& router() { return router_; }
  void start();
  // Stops the server and waits for it. Returns the result of run().
  bool stop();
  void begin_stop() { server_->stop(); }
  Wire connect() { return Wire(socket_); }
  Answer ask(const std::string& head_and_body);
  Answer post(const std::string& path, const std::string& body, const std::string& headers = {});
  state_db::Store& store() { return *store_; }
  WorkerPools& worker_pools() { return worker_pools_; }

 private:
  TemporaryDirectory directory_;
  std::string socket_;
  Limits limits_;
  std::unique_ptr<state_db::Store> store_;
  Router router_;
  WorkerPools worker_pools_{8};  // one user gets half of them
  std::unique_ptr<KeyedAnswers> answers_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  bool drained_ = false;
};

// Waits for another thread to make the condition true.
template <typename Condition>
bool soon(Condition condition, std::chrono::milliseconds at_most = std::chrono::seconds(10)) {
  const auto deadline = std::chrono::steady_clock::now() + tests::patient(at_most);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace moorage::daemon
