// A scripted daemon: HTTP/1.1 on a unix socket in a temporary directory, a thread for each
// connection, one handler for all requests. It can answer early, late, in pieces, or not at all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/os/fd.h"

namespace moorage::test {

class Call {
 public:
  explicit Call(int socket) : socket_(socket) {}
  // Reads the head; false at the end of the connection.
  bool read_head();
  const std::string& body();  // reads it on the first call
  void reply(int status, std::string_view body, std::string_view headers = "");  // with a length
  void begin(int status, std::string_view headers = "");                         // then chunks
  bool chunk(std::string_view bytes);  // false when the client is gone
  void end();
  void drop();                            // closes without another byte
  bool client_waits() const;              // the client has neither closed nor sent more
  void wait_until_client_leaves() const;  // 20 s at most
  bool keep_alive() const { return !dropped_ && (body_read_ || !has_body()); }
  std::string query(const std::string& name) const;
  bool is(std::string_view line) const { return method + " " + path == line; }

  std::string method;
  std::string path;  // without the query
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case

 private:
  bool has_body() const;
  bool fill();
  std::string take_line();
  std::string take(size_t size);

  int socket_;
  std::string buffer_;
  std::string body_;
  bool body_read_ = false;
  bool dropped_ = false;
};

struct Seen {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;
};

class ScriptedServer {
 public:
  using Handler = std::function<void(Call&)>;
  explicit ScriptedServer(Handler handler);
  ~ScriptedServer();
  const std::string& socket_path() const { return socket_path_; }
  const std::string& directory() const { return directory_; }
  void stop();  // closes the socket and every connection, as a killed daemon does
  void start();
  // Waits until no handler runs. It orders memory both ways between test and handlers: call it when
  // they take turns.
  void settle();
  std::vector<Seen> seen() const;
  size_t count(const std::string& line) const;  // "GET /v1/info": exact path

 private:
  void accept_loop();
  void serve(int socket);

  Handler handler_;
  std::string directory_;
  std::string socket_path_;
  base::Fd listener_;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int active_ = 0;  // running handlers
  std::list<std::thread> connections_;
  std::vector<int> sockets_;
  std::vector<Seen> seen_;
};

std::string json_header();  // "Content-Type: application/json\r\n"

}  // namespace moorage::test
