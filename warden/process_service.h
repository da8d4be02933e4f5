// envd's process.Process, GET /health and GET /metrics (see ../shared/specs), for the daemon only.
// Extensions: those of backends/envd_client.h; SendSignal with "tree": true kills everything the
// command started; POST /moorage/shutdown {"grace_ms": N} ends all commands and then the warden;
// GET /moorage/protocol returns the supported protocols (base/wire/protocol.h). StreamInput (client
// streaming) answers unimplemented: E2B's SDKs use SendInput.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "warden/exec.h"
#include "warden/io/connection.h"
#include "warden/io/loop.h"
#include "warden/output/late_output.h"

namespace boost::json {
class object;
}

namespace moorage::warden {

struct StartRequest;

inline constexpr size_t kMaxExecs = 512;

class ProcessService {
 public:
  using ShutDown =
      std::function<void(std::chrono::milliseconds grace, const std::shared_ptr<Connection>&)>;

  // `spool`: a directory for journals, or -1; borrowed.
  ProcessService(Loop& loop, SpawnContext context, int spool, ShutDown shut_down);
  ~ProcessService();
  void handle(const std::shared_ptr<Connection>& connection, HttpRequest&& request);
  void process_ended(pid_t pid, int status, const rusage& usage);
  size_t unfinished() const;  // execs whose end is not recorded yet
  bool recorded() const;      // and no late output is pending

 private:
  struct Entry;
  using Unary = void (ProcessService::*)(const std::shared_ptr<Connection>&,
                                         const boost::json::object&);

  void handle_rpc(const std::shared_ptr<Connection>& connection, HttpRequest& request,
                  std::string_view method);
  void handle_plain(const std::shared_ptr<Connection>& connection, const HttpRequest& request);
  void start(const std::shared_ptr<Connection>& connection, HttpRequest& request);
  void connect(const std::shared_ptr<Connection>& connection, HttpRequest& request);
  void list(const std::shared_ptr<Connection>& connection, const boost::json::object& body);
  void update(const std::shared_ptr<Connection>& connection, const boost::json::object& body);
  void send_input(const std::shared_ptr<Connection>& connection, const boost::json::object& body);
  void close_stdin(const std::shared_ptr<Connection>& connection, const boost::json::object& body);
  void send_signal(const std::shared_ptr<Connection>& connection, const boost::json::object& body);
  // What an ended command left behind. False: nothing is known of it.
  bool kill_left(const boost::json::object& body);

  void launch(StartRequest start, const std::shared_ptr<Connection>& connection);
  Entry& find(const boost::json::object& body);  // by process.pid or process.tag
  void exec_over(Entry& entry);
  void remove(const Entry* entry);
  void keep_few_ended();

  Loop& loop_;
  SpawnContext context_;
  int spool_;
  ShutDown shut_down_;
  LateOutput late_;
  std::list<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> removed_;  // until the handler that removed them returns
  std::map<std::string, pid_t> left_;  // subreapers of ended commands that left something, by tag
  Timer sweep_;
  bool shutting_down_ = false;
};

}  // namespace moorage::warden
